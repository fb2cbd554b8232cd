// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/base/timeline.h"
#include "lockstep/context/detail/context.h"

namespace lockstep {

/// Makes a timeline the calling thread's while it lives.
class TimelineScope {
 public:
  explicit TimelineScope(Timeline* timeline) noexcept : outer_(std::exchange(Context::current().timeline, timeline)) {}
  ~TimelineScope() { Context::current().timeline = outer_; }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  Timeline* outer_;
};

/// A span of the calling thread's timeline while it lives; nothing on a thread without one. `what` must be a literal.
///
///     { const PhaseScope waiting(Phase::data); batch = loader.next(); }
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase, const char* what = nullptr, int64_t number = -1)
      : timeline_(Context::current().timeline) {
    if (timeline_ != nullptr) timeline_->begin(phase, what, number);
  }
  ~PhaseScope() {
    if (timeline_ != nullptr) timeline_->end();
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Timeline* timeline_;
};

}  // namespace lockstep
