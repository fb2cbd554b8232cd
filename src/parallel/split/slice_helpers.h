// SPDX-License-Identifier: Apache-2.0
// Devices that share the slices of a replica's layers.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/timeline.h"

namespace lockstep::parallel {

/// Threads that compute slices of layers beside the threads of the replicas. A replica divides a layer's slices into
/// one group a sharer, in order, computes the first group and lets helpers take the others; what no helper has begun
/// when it is done, it computes itself. So nobody waits for a helper that is busy elsewhere.
class SliceHelpers {
 public:
  /// `helpers`: threads; `sharers`: of each replica's slices, its own thread among them.
  SliceHelpers(int64_t helpers, int64_t sharers, bool traced);
  SliceHelpers(const SliceHelpers&) = delete;
  SliceHelpers& operator=(const SliceHelpers&) = delete;
  ~SliceHelpers();

  /// As Slices::Run, for the calling replica. Helpers compute with what this thread knows of autograd.
  void run(int64_t replica, int64_t count, const std::function<void(int64_t)>& part);

  /// Ends the threads. No replica computes any more.
  void stop();
  /// What each did, for a trace; once they are stopped.
  std::vector<TraceRow> rows() const;

 private:
  struct Job;

  void serve(Timeline& timeline);
  Job* take();
  bool take_back(Job& job);
  static void compute(Job& job) noexcept;

  const int64_t sharers_;
  std::atomic<uint32_t> posted_{0};  // bumped whenever there is something to look at
  std::atomic<uint32_t> ended_{0};   // with every job that a helper has computed
  std::atomic<bool> stopped_{false};
  Mutex mutex_;
  std::deque<Job*> jobs_ LOCKSTEP_GUARDED_BY(mutex_);  // that nobody has begun
  std::deque<Timeline> timelines_;                     // [helper]
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::parallel
