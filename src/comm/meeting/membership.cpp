// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/membership.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>
#include <tuple>

#include "comm/connect_over.h"
#include "comm/failure/periodic.h"
#include "comm/meeting/membership_connection.h"
#include "comm/meeting/rendezvous.h"
#include "comm/meeting/shut_connections.h"
#include "comm/meeting/store_text.h"
#include "comm/transport/transport.h"
#include "lockstep/base/detail/first_line.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/detail/members.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

// Between two looks at who has come.
constexpr milliseconds kPause{3};
// Between two looks at whether a host is lost.
constexpr milliseconds kWatch{100};
// Within this time the launchers have heard of a loss, if there is one.
constexpr milliseconds kNoLoss{3000};
// A store that can't be reached by then is lost, and the launchers are about to find another.
constexpr milliseconds kReach{2000};

// None before this host's launcher has heard of any.
std::optional<members::Generation> newest_in(c10d::Store& store) {
  if (!store.check({members::key})) return std::nullopt;
  return members::parse(text_at(store, members::key));
}

bool has_newer(c10d::Store& store, int number) {
  const auto newest = newest_in(store);
  return newest && newest->number > number;
}

// Whether the others of this rank's host, which has come back, are at work without it.
bool is_left_out(c10d::Store& store, const Environment& place, milliseconds timeout) {
  if (place.local_size == place.size) return false;
  const auto start = Clock::now();
  for (;; std::this_thread::sleep_for(kPause)) {
    if (const auto newest = newest_in(store)) return !std::ranges::binary_search(newest->ranks, place.rank);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (Clock::now() - start > timeout)
      throw CommError(
          -1, "connect", seconds,
          text("connect: the launcher of rank ", place.rank, " has not reached that of ", place.store_host));
  }
}

// The store of the launcher's own host, which can't vanish alone.
Environment own_store(Environment place) {
  const std::string port = std::getenv(members::variable);
  place.store_host = "127.0.0.1";
  place.store_port = static_cast<int>(std::strtol(port.c_str(), nullptr, 10));
  require(place.store_port >= 1 && place.store_port <= 65535, "connect", members::variable, " is '", port,
          "', expected the port of the launcher's store");
  return place;
}

// None where a member was lost as they connected, or the store: the launcher says so in a newer generation.
std::optional<Group> try_to_make(const std::function<Group()>& make) {
  try {
    return make();
  } catch (const CommError& error) {
    log_info("join: ", error.what());
  } catch (const c10::Error& error) {
    log_info("join: ", first_line(error.what_without_backtrace()));
  }
  return std::nullopt;
}

std::string here_key(const members::Generation& generation, int rank) {
  return text("lockstep/here/", generation.run, "/", generation.number, "/", rank);
}

}  // namespace

std::optional<Membership> Membership::of_this_job(const ConnectOptions& options) {
  if (std::getenv(members::variable) == nullptr) return std::nullopt;
  const Environment place = read_environment();
  require(place.store_is_served && place.store_port != 0, "connect", members::variable, " is set by ", place.launcher,
          ", expected it from 'lockstep run --survive'");
  const auto store = open_store(own_store(place), options.timeout);
  const bool is_newcomer =
      std::getenv(members::newcomer_variable) != nullptr || is_left_out(*store, place, options.timeout);
  return Membership(std::make_shared<Connection>(Connection{place, options, store, connect_over}), is_newcomer);
}

Membership::Membership(std::shared_ptr<Connection> connection, bool is_newcomer)
    : connection_(std::move(connection)), newcomer_(is_newcomer) {}

void Membership::say_ready() {
  connection_->store->set(members::ready_key(connection_->place.rank, getpid()), std::vector<uint8_t>{1});
}

void Membership::say_done() {
  connection_->store->set(members::done_key, std::vector<uint8_t>{1});
}

bool Membership::is_done() {
  return connection_->store->check({members::done_key});
}

bool Membership::has_changed() {
  return has_newer(*connection_->store, generation_);
}

// Where the members of a generation say that they have come.
class Membership::Meeting {
 public:
  Meeting(const Environment& place, c10::intrusive_ptr<c10d::Store> own) : place_(place), own_(std::move(own)) {}

  // False also where the store is lost, with its host: then this is tried again, until there is a newer generation.
  bool have_all_come_to(const members::Generation& generation) {
    try {
      if (said_ < generation.number) {
        open(generation);
        store_->set(here_key(generation, place_.rank), std::vector<uint8_t>{1});
        said_ = generation.number;
      }
      std::vector<std::string> keys;
      for (const int rank : generation.ranks) keys.push_back(here_key(generation, rank));
      return store_->check(keys);
    } catch (const std::exception& error) {
      if (store_ == own_) throw;
      log_info("join: ", first_line(error.what()));
      store_.reset();
      said_ = -1;
      return false;
    }
  }

  /// Once all have come.
  c10::intrusive_ptr<c10d::Store> store() const { return store_; }

 private:
  void open(const members::Generation& generation) {
    if (generation.store_host.empty()) {
      store_ = own_;
      return;
    }
    if (store_ && place_.store_host == generation.store_host && place_.store_port == generation.store_port) return;
    store_.reset();
    place_.store_host = generation.store_host;
    place_.store_port = generation.store_port;
    store_ = open_store(place_, kReach);
  }

  Environment place_;
  const c10::intrusive_ptr<c10d::Store> own_;
  c10::intrusive_ptr<c10d::Store> store_;
  int said_ = -1;
};

// Those who have come say so, and nobody connects before all have: a member that is lost meanwhile makes a newer
// generation, for which the others need not wait until a connection to the dead fails.
Group Membership::join() {
  const Environment& place = connection_->place;
  const ConnectOptions& options = connection_->options;
  const auto start = Clock::now();
  const auto give_up = [&](const std::string& why) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    throw CommError(-1, "join", seconds, text("join: rank ", place.rank, " waited ", seconds, " s: ", why));
  };
  watch_.reset();
  Meeting meeting(place, connection_->store);
  int watched = generation_, asked = -1;
  auto apart_since = start;
  for (;; std::this_thread::sleep_for(kPause)) {
    if (Clock::now() - start > options.timeout) give_up("no new generation came together");
    const auto newest = newest_in(*connection_->store);
    if (!newest || newest->number <= generation_ || !std::ranges::binary_search(newest->ranks, place.rank)) {
      if (asked < generation_ && Clock::now() - apart_since > kNoLoss) {
        asked = generation_;
        connection_->store->set(members::again_key(generation_), std::vector<uint8_t>{1});
      }
      continue;
    }
    if (watched < newest->number) watch(*newest, std::nullopt);
    watched = newest->number;
    if (!meeting.have_all_come_to(*newest)) {
      if (is_done()) give_up("the others have ended, with all done");
      continue;
    }
    Environment now = place;
    const auto place_of = [&](int rank) {
      return std::ranges::lower_bound(newest->ranks, rank) - newest->ranks.begin();
    };
    const int first_here = place.rank - place.local_rank;
    now.rank = static_cast<int>(place_of(place.rank));
    now.size = static_cast<int>(newest->ranks.size());
    now.local_rank = static_cast<int>(place_of(place.rank) - place_of(first_here));
    now.local_size = static_cast<int>(place_of(first_here + place.local_size) - place_of(first_here));
    if (!newest->store_host.empty()) {
      now.store_host = newest->store_host;
      now.store_port = newest->store_port;
    }
    ConnectOptions wanted = options;
    wanted.name = text(options.name, "/", newest->number, "/", newest->run);
    wanted.asks_around = false;  // the launcher knows who has died
    wanted.given_up = [store = connection_->store, number = newest->number] { return has_newer(*store, number); };
    generation_ = newest->number;
    if (const auto group = try_to_make([&] { return connection_->connect(meeting.store(), now, wanted); })) {
      enough_ = newest->enough;
      ranks_ = newest->ranks;
      watch(*newest, group);
      return *group;
    }
    apart_since = Clock::now();
  }
}

// Until this process joins again, which also lets the group go. Where it is still being made, there is none. A host
// that vanishes closes no connection, and where members meet again that have lost each other, Gloo has not told all of
// them.
void Membership::watch(const members::Generation& joined, const std::optional<Group>& group) {
  const Environment& place = connection_->place;
  watch_.reset();
  if (place.size == 1) return;
  const auto look = [store = connection_->store, group, joined] {
    const auto newest = newest_in(*store);
    if (!newest || newest->number <= joined.number) return;
    if (std::tie(newest->store_host, newest->store_port) != std::tie(joined.store_host, joined.store_port))
      shut_connections_to(joined.store_host, joined.store_port);
    std::vector<int> lost;
    std::ranges::set_difference(joined.ranks, newest->ranks, std::back_inserter(lost));
    const bool is_again = newest->ranks == joined.ranks;
    if (group && (is_again || !lost.empty()))
      group->abort(is_again ? "all meet again" : text("rank ", lost[0], " was lost"));
  };
  watch_ = std::make_shared<Periodic>(kWatch, look);
}

}  // namespace lockstep::comm
