// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/slice_helpers.h"

#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "lockstep/context/detail/context.h"
#include "lockstep/context/timeline_scope.h"
#include "lockstep/dense/detail/image_operations.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/numerics/placement.h"

namespace lockstep::parallel {
namespace {

// The next layer usually comes soon; past this the core is better used by another thread.
constexpr auto kAwake = std::chrono::microseconds(60);

/// Returns once the value is not `seen` any more.
void await_change(const std::atomic<uint32_t>& value, uint32_t seen) {
  const auto until = std::chrono::steady_clock::now() + kAwake;
  while (std::chrono::steady_clock::now() < until)
    for (int i = 0; i < 64; ++i)
      if (value.load(std::memory_order_acquire) != seen) return;
  value.wait(seen);
}

}  // namespace

struct SliceHelpers::Job {
  const std::function<void(int64_t)>* part = nullptr;
  Interval slices{};
  const at::ThreadLocalState* state = nullptr;
  int64_t replica = 0;
  Phase phase = Phase::forward;
  std::exception_ptr error{};
  std::atomic<bool> done{false};
};

SliceHelpers::SliceHelpers(int64_t helpers, int64_t sharers, bool traced) : sharers_(sharers) {
  for (int64_t h = 0; h < helpers; ++h) timelines_.emplace_back(traced);
  try {
    for (Timeline& timeline : timelines_) threads_.emplace_back([this, &timeline] { serve(timeline); });
  } catch (...) {
    stop();
    throw;
  }
}

SliceHelpers::~SliceHelpers() {
  stop();
}

void SliceHelpers::stop() {
  stopped_ = true;
  ++posted_;
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void SliceHelpers::compute(Job& job) noexcept {
  try {
    for (int64_t slice = job.slices.begin; slice < job.slices.end; ++slice) (*job.part)(slice);
  } catch (...) {
    job.error = std::current_exception();
  }
}

SliceHelpers::Job* SliceHelpers::take() {
  const Lock lock(mutex_);
  if (jobs_.empty()) return nullptr;
  Job* const job = jobs_.front();
  jobs_.pop_front();
  return job;
}

bool SliceHelpers::take_back(Job& job) {
  const Lock lock(mutex_);
  return std::erase(jobs_, &job) > 0;
}

void SliceHelpers::serve(Timeline& timeline) {
  const ReplicaNumerics numerics;
  const ContextScope context({.images = &dense::image_operations()});
  while (!stopped_) {
    const uint32_t seen = posted_;
    Job* const job = take();
    if (job == nullptr) {
      if (!stopped_) await_change(posted_, seen);
      continue;
    }
    timeline.begin(job->phase, nullptr, job->replica);
    {
      const at::ThreadLocalStateGuard state(*job->state);
      compute(*job);
    }
    timeline.end();
    job->done.store(true, std::memory_order_release);  // the last that touches it: its replica may go on
    ++ended_;
    ended_.notify_all();
  }
}

void SliceHelpers::run(int64_t replica, int64_t count, const std::function<void(int64_t)>& part) {
  const int64_t groups = std::min(sharers_, count);
  const Placement shares = Placement::even(count, groups);
  const at::ThreadLocalState state;
  const Timeline* const timeline = Context::current().timeline;
  std::vector<Job> jobs(groups);
  for (int64_t g = 0; g < groups; ++g) {
    jobs[g].part = &part;
    jobs[g].slices = shares.block(g);
    jobs[g].state = &state;
    jobs[g].replica = replica;
    jobs[g].phase = timeline == nullptr ? Phase::forward : timeline->phase();
  }
  {
    const Lock lock(mutex_);
    for (int64_t g = 1; g < groups; ++g) jobs_.push_back(&jobs[g]);
  }
  ++posted_;
  posted_.notify_all();
  compute(jobs[0]);
  for (int64_t g = groups - 1; g > 0; --g) {
    if (take_back(jobs[g])) {
      compute(jobs[g]);
      continue;
    }
    const PhaseScope waiting(Phase::wait, "slices");
    for (uint32_t seen = ended_; !jobs[g].done.load(std::memory_order_acquire); seen = ended_)
      await_change(ended_, seen);
  }
  for (const Job& job : jobs)
    if (job.error) std::rethrow_exception(job.error);
}

std::vector<TraceRow> SliceHelpers::rows() const {
  std::vector<TraceRow> rows;
  for (const Timeline& timeline : timelines_)
    rows.push_back({"slices", {timeline.spans().begin(), timeline.spans().end()}});
  return rows;
}

}  // namespace lockstep::parallel
