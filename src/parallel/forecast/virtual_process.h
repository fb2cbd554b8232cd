// SPDX-License-Identifier: Apache-2.0
// The replicas of one process in virtual time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/crew/permits.h"
#include "parallel/forecast/virtual_line.h"
#include "parallel/forecast/virtual_time.h"

namespace lockstep::parallel {

/// The work of one process's steps.
struct ProcessWork {
  std::vector<double> forward, backward;  ///< [part] of one replica with a usual share
  std::vector<std::vector<double>> late;  ///< [part][layer] of backward: for when the device would be idle
  /// [part] buckets that are one gradient nearer to complete when so much of the part's backward pass is done, in the
  /// order of their times. None where there are no other processes.
  std::vector<std::vector<std::pair<double, int64_t>>> marks;
  std::vector<double> post;         ///< [bucket] adding up this process's gradients before they leave
  double data = 0;                  ///< a replica's wait for its share
  double turn = 0;                  ///< a replica takes its turn
  double update = 0;                ///< all that is left when passes have ended, by one thread
  int64_t update_tasks = 1;         ///< that it is divided into at most
  std::vector<int64_t> permits{1};  ///< [part]
  int64_t part = 0;                 ///< that this process is, where the network's parts are processes
  int64_t ahead = 0;                ///< permits of the parts that come after it in other processes
  int64_t behind = 0;               ///< and of those before it
  int64_t sharers = 1;              ///< threads that compute one replica
  int64_t members = 1;
  int64_t steps = 1;
  std::function<double(int64_t step, int64_t member)> share;  ///< empty: the usual one
};

/// Where a process's time went in one step, in seconds of devices (permits).
struct ProcessTimes {
  double forward = 0, backward = 0, post = 0, update = 0, data = 0, turn = 0;
  double begin = 0;
  double last_pass = 0;  ///< the moment at which the last replica had ended its pass
  double summed = 0;     ///< the moment at which all that others bring was there
  double end = 0;
};

/// Drives the crew's own permits: who computes, who waits and who is handed on what. Buckets leave as they become
/// complete; when all replicas have met, the update is divided over those that hold a permit.
class VirtualProcess {
 public:
  /// `on_bucket`: a bucket is posted. `on_met`: all replicas have ended their passes; the process goes on with
  /// update(). `line`: where the network's parts are processes; else none.
  VirtualProcess(VirtualTime& time, ProcessWork work, VirtualCores& cores, VirtualLine* line,
                 std::function<void(int64_t)> on_bucket, std::function<void()> on_met);
  VirtualProcess(const VirtualProcess&) = delete;
  VirtualProcess& operator=(const VirtualProcess&) = delete;

  void begin();
  void update();

  const std::vector<ProcessTimes>& steps() const { return steps_; }

 private:
  struct Member {
    int64_t step = 0;
    int64_t position = 0;  // parts forwards, then backwards
    size_t mark = 0;       // of this part
    double done = 0;       // of this part's backward pass
    double end = 0;        // of what it does now of that
    double began = 0;
    bool at_border = false;         // it wants a permit to go on with its pass
    std::vector<size_t> next_late;  // [part] layer whose weights' gradients nobody has taken
    int64_t helped = 0;             // of these, how many others compute now
    bool awaits_helpers = false;
    // When its pass has come back: whose gradients it computes, of which part and layer.
    int64_t late_member = 0, late_part = 0;
    size_t late_layer = 0;
    // Where parts are processes: what it waits for without a permit, and what has come.
    Handover awaited = Handover::none, received = Handover::none;
    Pass pass = Pass::begins;
    std::array<int64_t, 4> here{};
  };

  int64_t parts() const { return static_cast<int64_t>(work_.permits.size()); }
  int64_t part_at(int64_t position) const { return position < parts() ? position : 2 * parts() - 1 - position; }
  double share(const Member& member, int64_t number) const;
  double first_half(int64_t part) const;
  void begin_step(int64_t member);
  void advance(int64_t member);
  void come_to_part(int64_t member);
  void await(int64_t member, Handover what, Pass pass);
  void deliver(int64_t member, Handover what);
  void come_inside(int64_t member);
  void compute(int64_t member);
  void go_backward(int64_t member);
  bool begin_late(int64_t member);
  void compute_late(int64_t member, int64_t owner, int64_t part);
  void end_late(int64_t member);
  void help(int64_t member);
  void pass_mark(int64_t member, int64_t bucket);
  void finish_position(int64_t member);
  void meet(int64_t member);
  void wait_in_meeting(int64_t member);
  void look_again();
  void resume(int64_t member);
  void resume_all(const std::vector<int64_t>& members);
  void run(double seconds, CoreUse use, double ProcessTimes::*counted, VirtualTime::Event done);
  void finish();

  VirtualTime& time_;
  const ProcessWork work_;
  VirtualCores& cores_;
  VirtualLine* const line_;
  const std::function<void(int64_t)> on_bucket_;
  const std::function<void()> on_met_;
  Permits permits_;
  std::vector<Member> members_;
  std::vector<bool> stays_;       // in the meeting, with a permit
  std::vector<bool> helps_;       // another member meanwhile
  std::vector<int64_t> pending_;  // [bucket]
  int64_t arrived_ = 0;
  int64_t updating_ = 0;
  bool looks_again_ = false;
  bool met_ = false;
  std::vector<ProcessTimes> steps_;
};

}  // namespace lockstep::parallel
