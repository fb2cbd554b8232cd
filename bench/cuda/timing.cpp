// SPDX-License-Identifier: Apache-2.0
#include "cuda/timing.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "lockstep/base/detail/first_line.h"
#include "lockstep/base/detail/median.h"

namespace lockstep::bench {
namespace {

double time_turn(const Contender& contender) {
  at::cuda::CUDAEvent start(cudaEventDefault), end(cudaEventDefault);
  const auto stream = at::cuda::getCurrentCUDAStream();
  start.record(stream);
  for (int call = 0; call < kCalls; ++call) contender.run(call % kCopies);
  end.record(stream);
  end.synchronize();
  return static_cast<double>(start.elapsed_time(end)) / kCalls;
}

}  // namespace

std::vector<double> milliseconds(const std::vector<Contender>& contenders, int rounds) {
  std::vector<std::vector<double>> times(contenders.size());
  std::vector<bool> fails(contenders.size(), false);
  for (int round = -1; round < rounds; ++round)  // the first warms up
    for (size_t c = 0; c < contenders.size(); ++c) try {
        if (fails[c]) continue;
        const double time = time_turn(contenders[c]);
        if (round >= 0) times[c].push_back(time);
      } catch (const std::exception& error) {
        fails[c] = true;
        std::printf("    %s cannot run: %s\n", contenders[c].name.c_str(), first_line(error.what()).c_str());
      }
  std::vector<double> medians;
  for (size_t c = 0; c < contenders.size(); ++c)
    medians.push_back(fails[c] || times[c].empty() ? std::nan("") : median(times[c]));
  return medians;
}

nlohmann::json compare(const std::string& title, const char* unit, double work,
                       const std::vector<Contender>& contenders, int rounds) {
  const auto medians = milliseconds(contenders, rounds);
  nlohmann::json out;
  std::printf("  %s\n", title.c_str());
  for (size_t c = 0; c < contenders.size(); ++c) {
    const double per_second = work / medians[c] * 1e3;
    std::printf("    %-34s %9.4f ms %10.1f %s, %.2f times ours\n", contenders[c].name.c_str(), medians[c], per_second,
                unit, medians[c] / medians[0]);
    out[contenders[c].name] = {{"ms", medians[c]}, {"per_second", per_second}};
  }
  std::fflush(stdout);
  return out;
}

}  // namespace lockstep::bench
