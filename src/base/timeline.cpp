// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/timeline.h"

#include <chrono>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// 40 bytes each: a replica's trace takes 40 MiB at most.
constexpr size_t kMostSpans = 1 << 20;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

const char* name_of(Phase phase) {
  constexpr const char* names[] = {"forward", "backward", "exchange", "exposed", "update",
                                   "wait",    "data",     "evaluate", "step"};
  static_assert(std::size(names) == kPhases);
  return names[static_cast<size_t>(phase)];
}

double Timings::total() const {
  double sum = 0;
  for (const double part : seconds) sum += part;
  return sum;
}

Timings& Timings::operator+=(const Timings& other) {
  for (size_t p = 0; p < kPhases; ++p) seconds[p] += other.seconds[p];
  steps += other.steps;
  return *this;
}

Timings Timings::operator-(const Timings& before) const {
  Timings since = *this;
  for (size_t p = 0; p < kPhases; ++p) since.seconds[p] -= before.seconds[p];
  since.steps -= before.steps;
  return since;
}

void Timeline::open(Phase phase, const char* what, int64_t number, int64_t now) {
  open_.push_back({phase, what, number, now});
}

void Timeline::keep(const Open& span, const char* name, int64_t now) {
  if (!keeps_spans_) return;
  if (spans_.size() < kMostSpans)
    spans_.push_back({span.begin, now, name, span.what, span.number});
  else
    ++dropped_;
}

void Timeline::close_top(int64_t now) {
  LOCKSTEP_ASSERT(!open_.empty());
  const Open span = open_.back();
  open_.pop_back();
  const int64_t length = now - span.begin;
  timings_.seconds[static_cast<size_t>(span.phase)] += 1e-9 * static_cast<double>(length - span.inside);
  if (!open_.empty()) open_.back().inside += length;
  keep(span, name_of(span.phase), now);
}

void Timeline::begin(Phase phase, const char* what, int64_t number) {
  open(phase, what, number, now_ns());
}

void Timeline::end() {
  close_top(now_ns());
}

void Timeline::begin_step(int64_t number) {
  const int64_t now = now_ns();
  open(Phase::step, nullptr, number, now);
  open(Phase::forward, nullptr, -1, now);
}

void Timeline::enter(Phase phase) {
  const int64_t now = now_ns();
  close_top(now);
  open(phase, nullptr, -1, now);
}

void Timeline::end_step() {
  const int64_t now = now_ns();
  close_top(now);
  close_top(now);
  ++timings_.steps;
}

void Timeline::renumber(int64_t number) {
  for (Open& span : open_)
    if (span.phase == Phase::step) span.number = number;
}

void Timeline::mark_part(int64_t part) {
  if (keeps_spans_ && parts_.size() < kMostSpans) parts_.push_back({now_ns(), part});
}

void Timeline::close() {
  const int64_t now = now_ns();
  for (; !open_.empty(); open_.pop_back())
    if (open_.back().phase == Phase::step) keep(open_.back(), "rest", now);
}

}  // namespace lockstep
