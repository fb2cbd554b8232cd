// SPDX-License-Identifier: Apache-2.0
#include "launch/survival/kept_roster.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::launch {

namespace members = comm::members;

KeptRoster::KeptRoster(OwnHost own, RosterOptions options)
    : own_(std::move(own)), options_(std::move(options)), run_(own_.run) {
  if (own_.door) set_nonblocking(own_.door);
  for (int rank = 0; rank < options_.ranks; ++rank) members_.insert(rank);
  tell();
}

// Who of the own ranks works is known here best, and others say it of theirs when they come. All other members were
// those of the lost host.
KeptRoster::KeptRoster(Succession before, RosterOptions options)
    : own_(std::move(before.own)),
      options_(std::move(options)),
      run_(before.newest.run),
      number_(before.newest.number),
      members_(std::move(before.working)),
      expected_(std::move(before.expected)),
      all_have_come_(true),
      silent_since_(before.silent, Clock::now()),
      why_(std::move(before.why)),
      awaited_(std::move(before.others)),
      decides_at_(Clock::now() + options_.silent),
      given_up_(std::move(before.given_up)) {
  set_nonblocking(own_.door);
  for (const HostPlace& host : awaited_)
    std::ranges::copy_if(before.newest.ranks, std::inserter(members_, members_.end()),
                         [&](int rank) { return host.has(rank); });
}

std::string KeptRoster::lose(int rank) {
  share_done();
  return lose_all({rank});
}

void KeptRoster::look() {
  accept_hosts();
  for (OtherHost& host : hosts_)
    for (const std::string& line : host.link.hear()) hear(host, line);
  part_from_lost();
  if (is_deciding()) decide();
  share_done();
  if (own_.store.has(members::again_key(number_))) meet_again(number_);
  admit();
  tell_hosts();
}

bool KeptRoster::awaits_others(bool /*ended*/) const {
  return is_deciding() || std::ranges::any_of(hosts_, [&](const OtherHost& host) {
           return host.takes_part() && !members_of(host.place).empty();
         });
}

void KeptRoster::end(int exit_code) {
  say_to_all(text("end ", exit_code));
}

void KeptRoster::accept_hosts() {
  while (own_.door && !failure_) {
    Descriptor socket(accept4(own_.door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) return;
    hosts_.push_back({.link = HostLink(std::move(socket), options_.silent)});
    hosts_.back().link.say("keeper");
  }
}

void KeptRoster::hear(OtherHost& host, const std::string& line) {
  if (host.has_ended) return;
  std::istringstream in(line);
  std::string what;
  int rank = 0;
  in >> what >> rank;
  if (int number = 0; what == "host" && in >> host.place.count >> host.place.door >> number) {
    host.place.first = rank;
    host.place.address = host.link.peer();
    std::set<int> working;
    for (int working_rank = 0; in >> working_rank;) working.insert(working_rank);
    take_in(host, number, working);
  } else if (what == "done") {
    own_.store.set(members::done_key, "1");
  } else if (what == "given") {
    host.has_given_up = true;
  } else if (what == "end") {
    host.has_ended = true;
    if (rank != 0 && !failure_)
      failure_ = DistantEnd{text(host.place.name(), " has ended with exit code ", rank), rank};
  } else if (what == "again") {
    meet_again(rank);
  } else if (!host.place.has(rank)) {
    refuse(host);  // no launcher of this run
  } else if (what == "lost" && members_.contains(rank)) {
    share_done();
    options_.say(text("rank ", rank, " of another host is gone", lose_all({rank})));
  } else if (pid_t process = 0; what == "ready" && in >> process) {
    host.link.say(text("admitted ", rank, " ", process));
    if (members_.insert(rank).second) tell();
  }
}

void KeptRoster::take_in(OtherHost& host, int number, const std::set<int>& working) {
  const bool is_new = number < 0;
  const bool fits = is_apart(host) && std::ranges::all_of(working, [&](int rank) { return host.place.has(rank); });
  const bool expected = fits && is_expected(host.place, working);
  const bool is_back = fits && !expected && is_new && !is_deciding() && members_of(host.place).empty();
  if (!expected && !is_back) return refuse(host);
  if (is_back) {
    host.link.say("late");
    options_.say(text(host.place.name(), " is back, and its ranks are to take part"));
  }
  number_ = std::max(number_, number);
  std::erase_if(awaited_, [&](const HostPlace& place) { return place.first == host.place.first; });
  if (is_deciding()) {  // a newcomer of theirs may have been admitted without this host's knowledge
    for (const int rank : members_of(host.place)) members_.erase(rank);
    members_.insert(working.begin(), working.end());
    return;
  }
  host.link.say(text("members ", to_text(newest())));
  if (done_is_shared_) host.link.say("done");
  for (const int rank : members_of(host.place))
    if (!working.contains(rank)) options_.say(text("rank ", rank, " of another host is gone", lose_all({rank})));
}

// Of other hosts of this run.
bool KeptRoster::is_apart(const OtherHost& host) const {
  const HostPlace& place = host.place;
  const auto is_apart_from = [&](int first, int count) {
    return place.first + place.count <= first || first + count <= place.first;
  };
  return place.count >= 1 && place.first >= 0 && place.first + place.count <= options_.ranks &&
         is_apart_from(own_.first, own_.count) && std::ranges::all_of(hosts_, [&](const OtherHost& other) {
           return &other == &host || !other.takes_part() || is_apart_from(other.place.first, other.place.count);
         });
}

bool KeptRoster::is_expected(const HostPlace& place, const std::set<int>& working) const {
  const auto is_place = [&](const HostPlace& each) { return each.first == place.first && each.count == place.count; };
  return std::ranges::any_of(awaited_, is_place) || std::ranges::includes(members_, working);
}

void KeptRoster::refuse(OtherHost& host) {
  host.link.say("end 1");
  host.has_ended = true;
}

// Who falls silent may live on: its connection stays, and it is told that it was given up, for when it can hear that. A
// closed connection would say that this launcher has ended.
void KeptRoster::part_from_lost() {
  std::vector<HostPlace> lost;
  for (OtherHost& host : hosts_) {
    if (!host.takes_part() || !(host.link.is_lost() || host.has_given_up)) continue;
    lost.push_back(host.place);
    host.has_ended = true;
    if (host.link.is_closed() && !host.has_given_up) continue;
    host.link.say("given up");
    silent_since_.push_back(Clock::now());
  }
  hosts_.remove_if(
      [](const OtherHost& host) { return host.link.is_closed() || (host.place.count == 0 && host.link.is_lost()); });
  std::erase_if(silent_since_, [&](auto since) { return Clock::now() - since > options_.remembered(); });
  if (lost.empty() || failure_) return;
  share_done();
  if (own_.store.has(members::done_key)) return;
  if (!may_go_on(present(), silent(), /*with_the_keeper=*/true)) {
    failure_ = DistantEnd{cut_off(present(), silent()), 1};
    return;
  }
  for (const HostPlace& host : lost)
    if (const auto ranks = members_of(host); !ranks.empty())
      options_.say(text(host.name(), " is gone", lose_all(ranks)));
}

int KeptRoster::present() const {
  return 1 + static_cast<int>(std::ranges::count_if(hosts_, &OtherHost::takes_part));
}

int KeptRoster::silent() const {
  return static_cast<int>(silent_since_.size());
}

// Once all have come who may, or the time for it is over.
void KeptRoster::decide() {
  if (!awaited_.empty() && Clock::now() < *decides_at_) return;
  decides_at_.reset();
  silent_since_.resize(silent_since_.size() + awaited_.size(), Clock::now());
  if (!may_go_on(present(), silent(), /*with_the_keeper=*/false)) {
    failure_ = DistantEnd{text(why_, "; ", cut_off(present(), silent())), 1};
    return;
  }
  for (const HostPlace& host : awaited_)
    for (const int rank : members_of(host)) members_.erase(rank);
  awaited_.clear();
  options_.say(text(why_, lose_all({}), "; this host keeps the list of them now"));
}

void KeptRoster::admit() {
  for (auto at = expected_.begin(); at != expected_.end() && !is_deciding();) {
    const auto [rank, process] = *at;
    if (!own_.store.has(members::ready_key(rank, process))) {
      ++at;
      continue;
    }
    at = expected_.erase(at);
    members_.insert(rank);
    tell();
  }
}

// Before a loss: with all done, nobody has anything to do again.
void KeptRoster::share_done() {
  if (done_is_shared_ || !own_.door || !own_.store.has(members::done_key)) return;
  done_is_shared_ = true;
  say_to_all("done");
}

// They can go on without this host only where they know of each other.
void KeptRoster::tell_hosts() {
  KnownHosts known{.silent = silent()};
  for (const OtherHost& host : hosts_)
    if (host.takes_part()) known.places.push_back(host.place);
  std::ranges::sort(known.places, {}, &HostPlace::first);
  const auto is_known = [&](int rank) {
    return (rank >= own_.first && rank < own_.first + own_.count) ||
           std::ranges::any_of(known.places, [&](const HostPlace& host) { return host.has(rank); });
  };
  all_have_come_ = all_have_come_ || std::ranges::all_of(members_, is_known);
  const std::string now = text("hosts ", to_text(known));
  if (!all_have_come_ || is_deciding() || now == told_hosts_) return;
  say_to_all(told_hosts_ = now);
}

members::Generation KeptRoster::newest() const {
  return {.number = number_,
          .enough = !is_too_small(),
          .ranks = {members_.begin(), members_.end()},
          .run = run_,
          .store_host = own_.door ? own_.address : "",
          .store_port = own_.store.port()};
}

void KeptRoster::tell() {
  if (is_deciding()) return;
  ++number_;
  if (own_.door) tell_hosts();
  const std::string now = to_text(newest());
  own_.store.set(members::key, now);
  say_to_all(text("members ", now));
}

// Where a connection is lost and no process, nothing else makes a newer generation.
void KeptRoster::meet_again(int number) {
  if (number != number_ || is_deciding()) return;
  options_.say("ranks have lost each other, and none has ended: all meet again");
  tell();
}

std::string KeptRoster::lose_all(const std::vector<int>& ranks) {
  for (const int rank : ranks) members_.erase(rank);
  tell();
  if (!is_too_small()) return text("; the other ", members_.size(), " go on");
  return text("; the other ", members_.size(), " end, as --least is ", options_.least);
}

std::vector<int> KeptRoster::members_of(const HostPlace& place) const {
  return {members_.lower_bound(place.first), members_.lower_bound(place.first + place.count)};
}

void KeptRoster::say_to_all(const std::string& line) {
  for (OtherHost& host : hosts_)
    if (host.takes_part()) host.link.say(line);
}

std::unique_ptr<Roster> keep_roster(OwnHost own, RosterOptions options) {
  return std::make_unique<KeptRoster>(std::move(own), std::move(options));
}

}  // namespace lockstep::launch
