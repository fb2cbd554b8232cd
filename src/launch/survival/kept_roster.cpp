// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "launch/survival/host_link.h"
#include "launch/survival/roster.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/detail/members.h"

namespace lockstep::launch {
namespace {

namespace members = comm::members;

struct OtherHost {
  HostLink link;
  int first = 0;  // its ranks
  int count = 0;  // 0: it has not said
  bool has_ended = false;

  std::string name() const {
    return count == 1 ? text("the host of rank ", first) : text("the host of ranks ", first, " to ", first + count - 1);
  }
};

class KeptRoster final : public Roster {
 public:
  KeptRoster(ServedStore& store, int ranks, int least, Descriptor door, Say say)
      : store_(store), least_(least), door_(std::move(door)), say_(std::move(say)) {
    if (door_) set_nonblocking(door_);
    for (int rank = 0; rank < ranks; ++rank) members_.insert(rank);
    tell();
  }

  std::string lose(int rank) override { return lose_all({rank}); }
  void expect(int rank, pid_t newcomer) override { expected_[{rank, newcomer}] = nullptr; }
  void forget(int rank, pid_t newcomer) override { expected_.erase({rank, newcomer}); }
  bool has_admitted(int rank, pid_t newcomer) const override { return !expected_.contains({rank, newcomer}); }

  void look() override {
    while (door_) {
      Descriptor socket(accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) break;
      hosts_.push_back({.link = HostLink(std::move(socket))});
    }
    for (auto host = hosts_.begin(); host != hosts_.end();) {
      for (const std::string& line : host->link.hear()) hear(*host, line);
      const auto next = std::next(host);
      if (host->link.is_lost()) {
        std::erase_if(expected_, [&](const auto& newcomer) { return newcomer.second == &*host; });
        if (!host->has_ended) lose_host(*host);
        hosts_.erase(host);
      }
      host = next;
    }
    admit();
  }

  bool has_other_hosts() const override { return static_cast<bool>(door_); }
  bool awaits_others(bool /*ended*/) const override {
    return std::ranges::any_of(hosts_,
                               [&](const OtherHost& host) { return !host.has_ended && !members_of(host).empty(); });
  }
  bool is_too_small() const override { return std::ssize(members_) < least_; }
  std::optional<DistantEnd> distant_end() const override { return failure_; }
  void end(int exit_code) override {
    for (OtherHost& host : hosts_)
      if (!host.has_ended) host.link.say(text("end ", exit_code));
  }

 private:
  // A rank, and the process that is to take its place: numbers of processes are a host's own.
  using Newcomer = std::pair<int, pid_t>;

  void tell() {
    store_.set(members::key,
               to_text(members::Generation{++number_, !is_too_small(), {members_.begin(), members_.end()}}));
  }

  std::string lose_all(const std::vector<int>& ranks) {
    for (const int rank : ranks) members_.erase(rank);
    tell();
    if (!is_too_small()) return text("; the other ", members_.size(), " go on");
    for (OtherHost& host : hosts_) host.link.say("too few");
    return text("; the other ", members_.size(), " end, as --least is ", least_);
  }

  void lose_host(const OtherHost& host) {
    const std::vector<int> lost = members_of(host);
    if (!lost.empty() && !store_.has(members::done_key)) say_(text(host.name(), " is gone", lose_all(lost)));
  }

  void hear(OtherHost& host, const std::string& line) {
    if (host.has_ended) return;
    std::istringstream in(line);
    std::string what;
    int rank = 0;
    in >> what >> rank;
    if (what == "host" && in >> host.count) {
      host.first = rank;
      if (host.count < 1 || std::ssize(members_of(host)) != host.count) refuse(host);
    } else if (what == "end") {
      host.has_ended = true;
      if (rank != 0 && !failure_) failure_ = DistantEnd{text(host.name(), " has ended with exit code ", rank), rank};
    } else if (rank < host.first || rank >= host.first + host.count) {
      refuse(host);  // no launcher of this run
    } else if (what == "lost" && members_.contains(rank)) {
      say_(text("rank ", rank, " of another host is gone", lose(rank)));
    } else if (pid_t process = 0; what == "newcomer" && in >> process) {
      expected_[{rank, process}] = &host;
    } else if (what == "forget" && in >> process) {
      expected_.erase({rank, process});
    }
  }

  std::vector<int> members_of(const OtherHost& host) const {
    return {members_.lower_bound(host.first), members_.lower_bound(host.first + host.count)};
  }

  // A host that comes back after it was given up, say.
  void refuse(OtherHost& host) {
    host.link.say("end 1");
    host.has_ended = true;
  }

  void admit() {
    for (auto at = expected_.begin(); at != expected_.end();) {
      const auto [newcomer, host] = *at;
      if (!store_.has(members::ready_key(newcomer.first, newcomer.second))) {
        ++at;
        continue;
      }
      at = expected_.erase(at);
      members_.insert(newcomer.first);
      if (host != nullptr) host->link.say(text("admitted ", newcomer.first, " ", newcomer.second));
      tell();
    }
  }

  ServedStore& store_;
  const int least_;
  const Descriptor door_;
  const Say say_;
  int number_ = -1;
  std::set<int> members_;
  std::map<Newcomer, OtherHost*> expected_;  // and on which host, if it is another
  std::list<OtherHost> hosts_;
  std::optional<DistantEnd> failure_;
};

}  // namespace

std::unique_ptr<Roster> keep_roster(ServedStore& store, int ranks, int least, Descriptor door, Say say) {
  return std::make_unique<KeptRoster>(store, ranks, least, std::move(door), std::move(say));
}

}  // namespace lockstep::launch
