// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/survival/host_link.h"
#include "launch/survival/host_place.h"
#include "launch/survival/roster.h"
#include "lockstep/comm/detail/members.h"

namespace lockstep::launch {

/// A process that is to take a lost rank's place: numbers of processes are a host's own.
using Newcomer = std::pair<int, pid_t>;

/// What a launcher knows that takes the roster over from one that is lost.
struct Succession {
  OwnHost own;
  std::string why;
  comm::members::Generation newest;  // as the lost one said it
  std::set<int> working;             // of the own ranks
  std::set<Newcomer> expected;
  std::vector<HostPlace> others;   // who are to report here now
  int silent = 0;                  // other hosts that may live on elsewhere
  std::vector<HostLink> given_up;  // to keepers that fell silent: see KeptRoster::part_from_lost()
};

/// The roster, where it is kept.
class KeptRoster final : public Roster {
 public:
  KeptRoster(OwnHost own, RosterOptions options);
  /// Waits for the others, and goes on with those that come where these are enough.
  KeptRoster(Succession before, RosterOptions options);

  std::string lose(int rank) override;
  void expect(int rank, pid_t newcomer) override { expected_.insert({rank, newcomer}); }
  void forget(int rank, pid_t newcomer) override { expected_.erase({rank, newcomer}); }
  bool has_admitted(int rank, pid_t newcomer) const override { return !expected_.contains({rank, newcomer}); }
  void look() override;
  bool has_other_hosts() const override { return static_cast<bool>(own_.door); }
  bool awaits_others(bool ended) const override;
  bool is_too_small() const override { return !is_deciding() && std::ssize(members_) < options_.least; }
  std::optional<DistantEnd> distant_end() const override { return failure_; }
  void end(int exit_code) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct OtherHost {
    HostLink link;
    HostPlace place = {};
    bool has_ended = false;     // or is none of this run any more
    bool has_given_up = false;  // this launcher, which was silent: it may have another keeper
    bool takes_part() const { return place.count > 0 && !has_ended; }
  };

  void accept_hosts();
  void hear(OtherHost& host, const std::string& line);
  void take_in(OtherHost& host, int number, const std::set<int>& working);
  bool is_apart(const OtherHost& host) const;
  bool is_expected(const HostPlace& place, const std::set<int>& working) const;
  void refuse(OtherHost& host);
  void part_from_lost();
  void admit();
  void share_done();
  void tell_hosts();

  bool is_deciding() const { return decides_at_.has_value(); }
  void decide();
  int present() const;
  int silent() const;

  comm::members::Generation newest() const;
  void tell();
  void meet_again(int number);
  std::string lose_all(const std::vector<int>& ranks);
  std::vector<int> members_of(const HostPlace& place) const;
  void say_to_all(const std::string& line);

  OwnHost own_;
  const RosterOptions options_;
  std::string run_;
  int number_ = -1;
  std::set<int> members_;
  std::set<Newcomer> expected_;  // on this host
  std::list<OtherHost> hosts_;
  bool all_have_come_ = false;
  bool done_is_shared_ = false;
  std::string told_hosts_;
  std::vector<Clock::time_point> silent_since_;
  std::optional<DistantEnd> failure_;

  // After a succession.
  std::string why_;
  std::vector<HostPlace> awaited_;
  std::optional<Clock::time_point> decides_at_;
  std::vector<HostLink> given_up_;
};

}  // namespace lockstep::launch
