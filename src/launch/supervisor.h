// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/output.h"
#include "launch/rank_process.h"
#include "launch/survival/roster.h"
#include "launch/terminal_input.h"

namespace lockstep::launch {

/// Blocks the signals that a launcher passes on (those that are ignored, as under nohup, stay so) and makes them
/// readable, until it is destroyed. Make it before any other thread starts, so that all threads block them.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_.get(); }
  /// The mask to give back to the ranks.
  const sigset_t& mask_before() const { return before_; }
  /// The next signal that has come, or 0.
  int next();

 private:
  Descriptor fd_;
  sigset_t before_;
  struct sigaction child_before_ {};
  struct sigaction pipe_before_ {};
};

/// Watches over the ranks of one host until all have ended: passes signals on and output through, and ends the others
/// when one fails.
class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;

  Supervisor(Signals& signals, std::chrono::milliseconds grace) : signals_(signals), grace_(grace) {}

  /// Starts a process in the place of a lost one; none where nobody takes it.
  using Replace = std::function<std::optional<RankProcess>(int rank)>;
  /// The others go on when one is lost. Called before run().
  void survive(std::unique_ptr<Roster> roster, Replace replace);
  /// Starts a rank; on failure ends those that run, and throws.
  void start(int rank, const RankCommand& command);
  /// Until all have ended, those of other hosts too where a rank was lost. The exit code of the first that failed (128
  /// + signal where one killed it), or 0.
  int run(TerminalInput* input);
  /// The signal that asked all ranks to end, or 0.
  int told() const { return told_; }
  void say(const std::string& message);
  Output& output() { return output_; }

 private:
  int running() const;
  int poll_timeout() const;
  void wait_for_events(TerminalInput* input);
  void read_from(RankStream& stream);
  void read_remains();
  void kill_stopped();
  void reap();
  void ended(RankProcess& rank, int status);
  bool is_survived(const RankProcess& rank, int status) const;
  void lose(const RankProcess& rank, int status);
  void replace_lost();
  void hear_roster();
  void come_late();
  bool awaits_others() const;
  void failed(const RankProcess& rank, int status, int code);
  void on_signal(int signal);
  void send_all(int signal);
  std::string others() const;
  void end_others();
  void kill_now();

  Signals& signals_;
  const std::chrono::milliseconds grace_;
  Output output_;
  std::vector<RankProcess> ranks_;
  std::unique_ptr<Roster> roster_;  // where the others survive one's loss
  Replace replace_;
  std::set<int> lost_;       // whose place nobody has taken yet
  std::set<pid_t> waiting_;  // newcomers that are not ready yet
  bool came_late_ = false;
  bool one_has_finished_ = false;
  std::optional<int> exit_code_;  // of the first failure
  int told_ = 0;
  Clock::time_point told_at_;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace lockstep::launch
