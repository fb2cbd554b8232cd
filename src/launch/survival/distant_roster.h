// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/survival/host_link.h"
#include "launch/survival/kept_roster.h"
#include "launch/survival/pending_link.h"

namespace lockstep::launch {

/// The roster, where the launcher of another host keeps it, or nobody yet. When that one is lost, the first of the
/// others in the order of ranks is to keep it, and this one turns to each in turn until one answers, or it is its own
/// turn.
class DistantRoster final : public Roster {
 public:
  DistantRoster(OwnHost own, const std::vector<std::string>& hosts, int port, RosterOptions options);

  std::string lose(int rank) override;
  void expect(int rank, pid_t newcomer) override { expected_.insert({rank, newcomer}); }
  void forget(int rank, pid_t newcomer) override { expected_.erase({rank, newcomer}); }
  bool has_admitted(int rank, pid_t newcomer) const override { return !expected_.contains({rank, newcomer}); }
  void look() override;
  bool has_other_hosts() const override { return true; }
  bool is_late() const override { return is_late_; }
  bool awaits_others(bool ended) const override { return !ended && !end_; }
  bool is_too_small() const override { return !newest_.enough; }
  std::optional<DistantEnd> distant_end() const override { return end_; }
  void end(int exit_code) override;

  /// Whether it is this launcher's turn to keep the roster, or, where it is the first host's, nobody else keeps one.
  /// Then it has no other use any more.
  bool is_successor() const { return is_successor_; }
  bool is_beginner() const { return is_beginner_; }
  Succession hand_over();

 private:
  using Clock = std::chrono::steady_clock;

  void advance();
  void ask_next();
  void ask_again();
  void answer_others();
  void introduce();
  void hear(const std::string& line);
  void say_news();
  bool is_to_keep() const { return is_successor_ || is_beginner_; }
  void lose_keeper();
  void turn_to_next();

  OwnHost own_;
  const RosterOptions options_;
  const std::vector<std::string> hosts_;  // the first of which keeps the roster, when the run begins
  const int port_;
  size_t asked_ = 0;
  Clock::time_point ask_until_;
  PendingLink pending_;
  std::optional<HostLink> link_;
  bool is_introduced_ = false;  // the one at the other end keeps the roster, and knows of this host
  bool is_elsewhere_ = false;   // it has said that it keeps none
  bool others_work_ = false;    // one of those asked knows who keeps the roster
  bool is_late_ = false;
  comm::members::Generation newest_{.number = -1, .ranks = {}};
  std::set<int> working_;
  std::set<Newcomer> expected_, ready_;  // on this host; those of them that are said to be ready
  bool done_is_shared_ = false;
  int again_ = -1;  // the generation that is said to have come apart
  KnownHosts known_;
  Clock::time_point known_since_{};
  std::optional<DistantEnd> end_;

  // In a succession.
  std::string why_;                             // the keeper before is lost; empty: it is not
  std::deque<HostPlace> candidates_;            // who may keep the roster, the one that is tried first
  std::optional<Clock::time_point> try_until_;  // this one
  int silent_ = 0;
  std::vector<HostLink> given_up_;
  bool is_successor_ = false;
  bool is_beginner_ = false;
};

}  // namespace lockstep::launch
