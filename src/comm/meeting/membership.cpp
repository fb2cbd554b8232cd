// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/membership.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "comm/failure/periodic.h"
#include "comm/meeting/membership_connection.h"
#include "comm/meeting/rendezvous.h"
#include "comm/meeting/store_text.h"
#include "comm/transport/transport.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/detail/members.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

// Between two looks at who has come.
constexpr milliseconds kPause{3};
// Between two looks at whether a host is lost.
constexpr milliseconds kWatch{100};

members::Generation newest_in(c10d::Store& store) {
  return members::parse(text_at(store, members::key));
}

}  // namespace

std::optional<Membership> Membership::of_this_job(const ConnectOptions& options) {
  if (std::getenv(members::variable) == nullptr) return std::nullopt;
  const Environment place = read_environment();
  require(place.store_is_served && place.store_port != 0, "connect", members::variable, " is set by ", place.launcher,
          ", expected it from 'lockstep run --survive'");
  const auto connect_all = [](const Environment& now, const ConnectOptions& wanted) { return connect(now, wanted); };
  return Membership(
      std::make_shared<Connection>(Connection{place, options, open_store(place, options.timeout), connect_all}),
      std::getenv(members::newcomer_variable) != nullptr);
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
  return newest_in(*connection_->store).number > generation_;
}

// Those who have come say so, and nobody connects before all have: a member that is lost meanwhile makes a newer
// generation, for which the others need not wait until a connection to the dead fails.
Group Membership::join() {
  const Environment& place = connection_->place;
  const ConnectOptions& options = connection_->options;
  const auto& store = connection_->store;
  watch_.reset();
  const auto start = Clock::now();
  const auto give_up = [&](const std::string& why) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    throw CommError(-1, "join", seconds, text("join: rank ", place.rank, " waited ", seconds, " s: ", why));
  };
  const auto key_of = [](int generation, int rank) { return text("lockstep/here/", generation, "/", rank); };
  int said = generation_;
  for (;; std::this_thread::sleep_for(kPause)) {
    if (Clock::now() - start > options.timeout) give_up("no new generation came together");
    const members::Generation newest = newest_in(*connection_->store);
    if (newest.number <= generation_ || !std::ranges::binary_search(newest.ranks, place.rank)) continue;
    if (said < newest.number) store->set(key_of(said = newest.number, place.rank), std::vector<uint8_t>{1});
    std::vector<std::string> keys;
    for (const int rank : newest.ranks) keys.push_back(key_of(newest.number, rank));
    if (!store->check(keys)) {
      if (is_done()) give_up("the others have ended, with all done");
      continue;
    }
    Environment now = place;
    const auto place_of = [&](int rank) { return std::ranges::lower_bound(newest.ranks, rank) - newest.ranks.begin(); };
    const int first_here = place.rank - place.local_rank;
    now.rank = static_cast<int>(place_of(place.rank));
    now.size = static_cast<int>(newest.ranks.size());
    now.local_rank = static_cast<int>(place_of(place.rank) - place_of(first_here));
    now.local_size = static_cast<int>(place_of(first_here + place.local_size) - place_of(first_here));
    ConnectOptions wanted = options;
    wanted.name = text(options.name, "/", newest.number);
    wanted.asks_around = false;  // the launcher knows who has died
    try {
      Group group = connection_->connect(now, wanted);
      generation_ = newest.number;
      enough_ = newest.enough;
      ranks_ = newest.ranks;
      if (place.local_size < place.size) watch(group);
      return group;
    } catch (const CommError&) {
      generation_ = newest.number;  // a member was lost as they connected: the launcher says so in a newer one
    }
  }
}

// Until this process joins again, which also lets the group go.
void Membership::watch(const Group& group) {
  const auto look = [store = connection_->store->clone(), group, generation = generation_, ranks = ranks_] {
    const members::Generation newest = newest_in(*store);
    if (newest.number <= generation) return;
    std::vector<int> lost;
    std::ranges::set_difference(ranks, newest.ranks, std::back_inserter(lost));
    if (!lost.empty()) group.abort(text("rank ", lost[0], " was lost"));
  };
  watch_ = std::make_shared<Periodic>(kWatch, look);
}

}  // namespace lockstep::comm
