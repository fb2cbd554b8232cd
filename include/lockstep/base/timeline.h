// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Where the time of a training step goes: each thread that runs a replica keeps a timeline of nested spans. Their sums
/// are always kept (a dozen clock readings a step); the spans themselves are kept where a trace is wanted.
namespace lockstep {

/// What a replica's thread is doing. A span's own time is what the spans inside it leave over, so the own times of all
/// phases add up to the time of the steps.
enum class Phase : uint8_t {
  forward,   ///< from the end of a step (or the start of the run) to the backward pass: the caller's own code, too
  backward,  ///< autograd
  exchange,  ///< adding up and sending what other processes or layers of other replicas need, inside the two above
  exposed,   ///< blocked until gradients of other processes are there
  update,    ///< adding up gradients and applying the rule, the replica's part of the work
  wait,      ///< for the other replicas of this process, or for a turn on a device
  data,      ///< waiting for examples: for callers to mark (context/timeline_scope.h)
  evaluate,  ///< Replica::evaluate
  step,      ///< what is left of a step
};
inline constexpr size_t kPhases = 9;

/// "forward", "backward", ...
const char* name_of(Phase phase);

/// Seconds of own time, by phase.
struct Timings {
  std::array<double, kPhases> seconds{};
  int64_t steps = 0;

  double operator[](Phase phase) const { return seconds[static_cast<size_t>(phase)]; }
  /// The sum of all phases.
  double total() const;
  Timings& operator+=(const Timings& other);
  /// What came after `before`: `timings() - at_the_start_of_the_epoch`.
  Timings operator-(const Timings& before) const;
};

/// A closed span, in nanoseconds of the steady clock, which the processes of a host share.
struct TraceSpan {
  int64_t begin = 0;
  int64_t end = 0;
  const char* name = nullptr;  // a literal
  const char* what = nullptr;  // a literal: what is waited for
  int64_t number = -1;         // of the step, of the bucket; not shown where `what` is
};

/// What a thread computes from a moment on is this part of a network that threads divide; -1: of none.
struct PartMark {
  int64_t at = 0;
  int64_t part = -1;
};

/// One thread's spans. Used by that thread alone.
class Timeline {
 public:
  /// `keeps_spans`: for a trace; else sums alone.
  explicit Timeline(bool keeps_spans = false) : keeps_spans_(keeps_spans) {}

  void begin(Phase phase, const char* what = nullptr, int64_t number = -1);
  void end();

  /// A step is one span, cut without gaps into phases: it begins with `forward`, and enter() goes on to another phase.
  void begin_step(int64_t number);
  void enter(Phase phase);
  void end_step();
  /// The step that is under way is another one than was said.
  void renumber(int64_t number);
  /// From now on it computes this part of the network. Kept for a trace alone.
  void mark_part(int64_t part);
  /// Ends what is open. What came after the last step is no step: the trace calls it "rest", and no sum has it.
  void close();

  /// Of the innermost span that is open; `forward` where none is.
  Phase phase() const { return open_.empty() ? Phase::forward : open_.back().phase; }
  /// Of all spans that have ended.
  const Timings& timings() const { return timings_; }
  std::span<const TraceSpan> spans() const { return spans_; }
  std::span<const PartMark> parts() const { return parts_; }
  /// Spans that found no room: a timeline keeps the first million.
  int64_t dropped() const { return dropped_; }

 private:
  struct Open {
    Phase phase;
    const char* what;
    int64_t number;
    int64_t begin;
    int64_t inside = 0;  // the time of the spans that it holds
  };
  void open(Phase phase, const char* what, int64_t number, int64_t now);
  void close_top(int64_t now);
  void keep(const Open& span, const char* name, int64_t now);

  bool keeps_spans_;
  std::vector<Open> open_;
  Timings timings_;
  std::vector<TraceSpan> spans_;
  std::vector<PartMark> parts_;
  int64_t dropped_ = 0;
};

/// The file that the environment's LOCKSTEP_TRACE names for process `rank` of `ranks`: "run.json", or "run.rank3.json"
/// where there are several. Empty: no trace is wanted.
std::string trace_file(int rank, int ranks);

/// A timeline and the number of the replica whose thread kept it.
struct TraceThread {
  int64_t replica = 0;
  const Timeline* timeline = nullptr;
};

/// A row of a trace that is no replica's: what a device did, each span with the number of its replica.
struct TraceRow {
  std::string name;
  std::vector<TraceSpan> spans;
};
/// The thread of the first such row in a trace; replicas have smaller numbers.
inline constexpr int64_t kFirstTraceRow = int64_t{1} << 20;

/// Adds the threads' spans and the rows to a file in Chrome's trace format (chrome://tracing, ui.perfetto.dev): process
/// = rank, thread = replica, microseconds. The first call of this process for a file makes it anew; after each call the
/// file is whole. Throws Error when it can't be written.
void write_trace(const std::string& file, int rank, std::span<const TraceThread> threads,
                 std::span<const TraceRow> rows = {});

}  // namespace lockstep
