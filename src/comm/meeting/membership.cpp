// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/membership.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "comm/meeting/membership_connection.h"
#include "comm/meeting/rendezvous.h"
#include "comm/transport/transport.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/detail/members.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

// Between two looks at who has come.
constexpr milliseconds kPause{3};

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
  connection_->store->set(kDoneKey, std::vector<uint8_t>{1});
}

bool Membership::is_done() {
  return connection_->store->check({kDoneKey});
}

bool Membership::has_changed() {
  return connection_->newest().number > generation_;
}

// Those who have come say so, and nobody connects before all have: a member that is lost meanwhile makes a newer
// generation, for which the others need not wait until a connection to the dead fails.
Group Membership::join() {
  const Environment& place = connection_->place;
  const ConnectOptions& options = connection_->options;
  const auto& store = connection_->store;
  const auto start = Clock::now();
  const auto give_up = [&](const std::string& why) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    throw CommError(-1, "join", seconds, text("join: rank ", place.rank, " waited ", seconds, " s: ", why));
  };
  const auto key_of = [](int generation, int rank) { return text("lockstep/here/", generation, "/", rank); };
  int said = generation_;
  for (;; std::this_thread::sleep_for(kPause)) {
    if (Clock::now() - start > options.timeout) give_up("no new generation came together");
    const members::Generation newest = connection_->newest();
    const auto mine = std::ranges::find(newest.ranks, place.rank);
    if (newest.number <= generation_ || mine == newest.ranks.end()) continue;
    if (said < newest.number) store->set(key_of(said = newest.number, place.rank), std::vector<uint8_t>{1});
    std::vector<std::string> keys;
    for (const int rank : newest.ranks) keys.push_back(key_of(newest.number, rank));
    if (!store->check(keys)) {
      if (is_done()) give_up("the others have ended, with all done");
      continue;
    }
    Environment now = place;
    now.rank = now.local_rank = static_cast<int>(mine - newest.ranks.begin());
    now.size = now.local_size = static_cast<int>(newest.ranks.size());
    ConnectOptions wanted = options;
    wanted.name = text(options.name, "/", newest.number);
    wanted.asks_around = false;  // the launcher knows who has died
    try {
      Group group = connection_->connect(now, wanted);
      generation_ = newest.number;
      enough_ = newest.enough;
      ranks_ = newest.ranks;
      return group;
    } catch (const CommError&) {
      generation_ = newest.number;  // a member was lost as they connected: the launcher says so in a newer one
    }
  }
}

}  // namespace lockstep::comm
