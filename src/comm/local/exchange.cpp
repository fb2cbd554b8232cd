// SPDX-License-Identifier: Apache-2.0
#include "comm/local/exchange.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace lockstep::comm::local {
namespace {

// Bytes of one source in a slice: small enough for two threads to share a megabyte evenly and for all sources of a
// slice to stay in the second-level cache, large enough for its bookkeeping to vanish.
constexpr int64_t kThreadSliceBytes = 64 << 10;
// How long a waiting thread stays awake before it sleeps: a few times what waking up costs.
constexpr std::chrono::microseconds kAwakeTime{120};
// A yield that takes longer was to another program, and for how long nobody yields after it.
constexpr std::chrono::milliseconds kTimeSlice{1};
constexpr std::chrono::milliseconds kCrowdedTime{100};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void SpinPolicy::yield() {
  const auto start = Clock::now();
  std::this_thread::yield();
  const auto end = Clock::now();
  if (end - start > kTimeSlice) crowded_until_.store(end + kCrowdedTime, std::memory_order_relaxed);
}

Clock::time_point SpinPolicy::awake_until() const {
  const auto now = Clock::now();
  return now < crowded_until_.load(std::memory_order_relaxed) ? now : now + kAwakeTime;
}

bool Exchange::arrive(int rank, Call call, StreamOrder order) {
  const size_t slot = slot_of(rank);
  calls_[slot] = std::move(call);
  orders_[slot] = std::move(order);
  arrived_[slot] = true;
  return ++arrivals_ == ranks_.size();
}

bool Exchange::has_arrived(int rank) const {
  const size_t slot = slot_of(rank);
  return slot == ranks_.size() || arrived_[slot];  // or takes no part
}

int Exchange::missing() const {
  for (size_t slot = 0; slot < ranks_.size(); ++slot)
    if (!arrived_[slot]) return ranks_[slot];
  return -1;
}

void Exchange::start() {
  if (const auto mismatch = find_mismatch(calls_)) {
    failure_ = Failure{ranks_[mismatch->rank], mismatch->message};
    return enter(State::failed);
  }
  jobs_ = plan(calls_);
  cut();
  if (slices_.empty()) return enter(State::done);
  deal();
  enter(State::running);
  // One small slice is done sooner than another thread wakes up.
  if (slices_.size() == 1 && slices_[0].device < 0) run_slices(0);
}

void Exchange::fail(Failure failure) {
  if (ended() || missing() < 0) return;
  failure_ = std::move(failure);
  enter(State::failed);
}

void Exchange::release(int rank) noexcept {
  if (state_.load(std::memory_order_acquire) == State::done) calls_[slot_of(rank)] = Call();
}

void Exchange::cut() {
  for (size_t j = 0; j < jobs_.size(); ++j) {
    const Job& job = jobs_[j];
    programs_.push_back(job.leaves > 0 ? TreeProgram::of_block(job.leaves, job.block)
                                       : TreeProgram::of_leaves(static_cast<int64_t>(job.sources.size())));
    // On GPUs, each destination's device does its part.
    const auto parts = static_cast<int64_t>(job.devices.size());
    const int64_t step = parts > 0 ? (job.count + parts - 1) / parts
                                   : kThreadSliceBytes / static_cast<int64_t>(c10::elementSize(job.dtype));
    for (int64_t begin = 0; begin < job.count; begin += step)
      slices_.push_back({static_cast<int32_t>(j), begin, std::min(step, job.count - begin),
                         parts > 0 ? job.devices[begin / step] : -1});
  }
}

void Exchange::deal() {
  const size_t slices = slices_.size(), parts = ranks_.size();
  remaining_.store(static_cast<int64_t>(slices), std::memory_order_relaxed);
  parts_ = std::vector<Part>(parts);
  for (size_t p = 0; p < parts; ++p) {
    parts_[p].next.store(static_cast<int64_t>(slices * p / parts), std::memory_order_relaxed);
    parts_[p].end = static_cast<int64_t>(slices * (p + 1) / parts);
  }
}

void Exchange::run(const Slice& slice) const {
  const Job& job = jobs_[slice.job];
  const int64_t offset = slice.begin * static_cast<int64_t>(c10::elementSize(job.dtype));
  if (slice.device < 0 && job.sources.size() == 1 && job.dtype == at::kByte) {
    for (std::byte* to : job.destinations) std::memcpy(to + offset, job.sources[0] + offset, slice.count);
    return;
  }
  std::vector<const std::byte*> sources(job.sources);
  std::vector<std::byte*> destinations(job.destinations);
  for (auto& source : sources) source += offset;
  for (auto& destination : destinations) destination += offset;
  if (slice.device >= 0) return run_on_gpu(slice, sources, destinations);
  reduce(programs_[slice.job], job.op, job.dtype, sources, destinations, slice.count,
         static_cast<int64_t>(job.sources.size()));
}

void Exchange::run_on_gpu(const Slice& slice, std::span<const std::byte* const> sources,
                          std::span<std::byte* const> destinations) const {
  const Job& job = jobs_[slice.job];
  for (const StreamOrder& order : orders_) order.enter(slice.device);
  reduce_on_cuda(slice.device, programs_[slice.job], job.op, job.dtype, sources, destinations, slice.count,
                 static_cast<int64_t>(job.sources.size()));
  StreamOrder::leave(slice.device);
}

bool Exchange::run_slices(size_t slot) {
  for (size_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[(slot + p) % parts_.size()];
    for (int64_t i; (i = part.next.fetch_add(1, std::memory_order_relaxed)) < part.end;) {
      try {
        run(slices_[i]);
      } catch (const std::exception& error) {  // a GPU that refuses
        failure_ = Failure{-1, error.what()};
        enter(State::failed);
        return true;
      }
      if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        enter(State::done);
        return true;
      }
    }
  }
  return false;
}

void Exchange::enter(State state) {
  {
    const Lock lock(mutex_);
    state_.store(state, std::memory_order_release);
  }
  changed_.notify_all();
}

bool Exchange::sleep_while(State state, Clock::time_point until) {
  Lock lock(mutex_);
  while (state_.load(std::memory_order_relaxed) == state)
    if (!changed_.wait_until(lock, until)) return state_.load(std::memory_order_relaxed) != state;
  return true;
}

bool Exchange::help_until(int rank, Clock::time_point until) {
  const auto awake_until = std::min(until, spin_policy_.awake_until());
  for (;;) {
    const State state = state_.load(std::memory_order_acquire);
    if (state >= State::done) return true;
    if (state == State::running && run_slices(slot_of(rank))) return true;
    // Either somebody has not come yet, or the last slices are in other hands.
    const auto changed = [&] { return state_.load(std::memory_order_relaxed) != state; };
    while (!changed() && Clock::now() < awake_until) {
      for (int i = 0; i < 16 && !changed(); ++i) pause();
      spin_policy_.yield();
    }
    if (!changed() && !sleep_while(state, until)) return false;
  }
}

}  // namespace lockstep::comm::local
