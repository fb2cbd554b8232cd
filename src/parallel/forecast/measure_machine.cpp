// SPDX-License-Identifier: Apache-2.0
// What meetings, additions and messages take on this machine.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "lockstep/base/detail/median.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/choose_split.h"
#include "parallel/forecast/parts.h"
#include "parallel/split/slice_helpers.h"

namespace lockstep::parallel {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point began) {
  return std::chrono::duration<double>(SteadyClock::now() - began).count();
}

/// Of this process, on all its threads.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Spent {
  double seconds, cpu;
};

/// The median of what a call takes, where all ranks begin together.
Spent time_of(const comm::Group& group, int rounds, int repetitions, const std::function<void()>& call) {
  std::vector<double> seconds, cpu;
  for (int round = -1; round < rounds; ++round) {
    group.barrier().wait();
    const auto began = SteadyClock::now();
    const double cpu_began = cpu_seconds();
    for (int i = 0; i < repetitions; ++i) call();
    if (round < 0) continue;
    seconds.push_back(seconds_since(began) / repetitions);
    cpu.push_back((cpu_seconds() - cpu_began) / repetitions);
  }
  return {median(std::move(seconds)), median(std::move(cpu))};
}

/// Sums of three sizes and many small messages at once.
LinkCost link_of_two(const comm::Group& group, int64_t large_bytes, int rounds) {
  const int64_t small_bytes = large_bytes / 4;
  constexpr int kMessages = 64;
  const auto sum_of = [&](int64_t bytes, int repetitions) {
    const auto tensor = at::zeros({bytes / 4});
    return time_of(group, rounds, repetitions, [&] { group.all_reduce(tensor).wait(); });
  };
  const Spent tiny = sum_of(64, 50), small = sum_of(small_bytes, 4), large = sum_of(large_bytes, 1);
  const int other = 1 - group.rank();
  const auto token = at::zeros({1}), heard = at::zeros({kMessages});
  const Spent burst = time_of(group, rounds, 4, [&] {
    std::vector<comm::Work> works;
    for (int m = 0; m < kMessages; ++m) works.push_back(group.recv(heard.narrow(0, m, 1), other, m));
    for (int m = 0; m < kMessages; ++m) works.push_back(group.send(token, other, m));
    for (auto& work : works) work.wait();
  });
  const auto bytes = static_cast<double>(large_bytes - small_bytes);
  const double more = std::max(1e-6, large.seconds - small.seconds);
  const double message = std::min(tiny.seconds, burst.seconds / kMessages);
  return {.latency = tiny.seconds - message,
          .bytes_per_second = bytes / more,
          .message = message,
          .cpu_byte = std::max(0.0, large.cpu - small.cpu) / bytes,
          .cpu_message = burst.cpu / kMessages};
}

// One tensor of so many bytes to another, on one device.
double seconds_of_adding(int64_t bytes) {
  constexpr int64_t kMost = 64 << 20;
  const int64_t some = std::clamp<int64_t>(bytes, 4, kMost);
  const at::Tensor sum = at::zeros({some / 4}), term = at::zeros({some / 4});
  const auto add = [&] { sum.add_(term); };
  add();
  const auto began = SteadyClock::now();
  add();
  return seconds_since(began) * static_cast<double>(bytes) / static_cast<double>(some);
}

}  // namespace

double measure_meeting() {
  constexpr int kTimes = 200;
  SliceHelpers helpers(1, 2, false);
  const auto meet = [&] {
    for (int time = 0; time < kTimes; ++time) helpers.run(0, 2, [](int64_t) {});
  };
  meet();
  const auto began = SteadyClock::now();
  meet();
  return seconds_since(began) / kTimes;
}

void measure_update(StepCost& cost, int64_t states) {
  cost.sum_row = seconds_of_adding(gradient_bytes(cost));
  cost.update = cost.sum_row * (1 + 2 * static_cast<double>(states) / 3);
}

LinkCost measure_link(const comm::Group& group, int64_t most_bytes, int rounds) {
  LOCKSTEP_ASSERT(group.size() > 1);
  const int last = group.size() - 1;
  const bool is_end = group.rank() == 0 || group.rank() == last;
  const comm::Group ends = group.size() == 2 ? group : group.split(is_end ? 0 : 1);
  return is_end ? link_of_two(ends, most_bytes, rounds) : LinkCost{};
}

}  // namespace lockstep::parallel
