// SPDX-License-Identifier: Apache-2.0
// Convolutions of images on one thread: ours against libtorch's, channels-last both. They take turns.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/dense/convolution.h"
#include "support/interleave.h"
#include "support/program.h"
#include "support/sgemm.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;
using dense::ConvolutionOptions;

struct Load {
  const char* name;
  int64_t images, channels, size, filters, kernel, stride, padding;
};

constexpr Load loads[] = {{"LeNet's first", 32, 1, 28, 20, 3, 1, 0},     {"LeNet's second", 32, 20, 13, 50, 5, 1, 0},
                          {"CIFAR's stem", 32, 3, 32, 64, 3, 1, 1},      {"ResNet's stem", 4, 3, 64, 64, 7, 2, 3},
                          {"ResNet, 16 x 16", 8, 64, 16, 64, 3, 1, 1},   {"ResNet, stride 2", 8, 64, 16, 128, 3, 2, 1},
                          {"ResNet, 8 x 8", 8, 128, 8, 128, 3, 1, 1},    {"ResNet, 4 x 4", 8, 256, 4, 256, 3, 1, 1},
                          {"ResNet, 2 x 2", 8, 512, 2, 512, 3, 1, 1},    {"ResNet, 56 x 56", 1, 64, 56, 64, 3, 1, 1},
                          {"ResNet's shortcut", 8, 64, 16, 128, 1, 2, 0}};

/// Seconds a call, over at least 20 ms of calls.
template <class Work>
double seconds(const Work& work) {
  int64_t calls = 0;
  const auto start = Clock::now();
  double passed = 0;
  do {
    work();
    ++calls;
    passed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (passed < 0.02);
  return passed / static_cast<double>(calls);
}

at::Tensor image(at::IntArrayRef sizes) {
  return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

nlohmann::json measure(const Load& load, int rounds) {
  const ConvolutionOptions options{{load.stride, load.stride}, {load.padding, load.padding}};
  const at::Tensor x = image({load.images, load.channels, load.size, load.size});
  const at::Tensor w = image({load.filters, load.channels, load.kernel, load.kernel}), b = at::randn({load.filters});
  const at::Tensor y = dense::convolution(x, w, b, options), g = at::randn_like(y);
  const auto theirs = [&](std::array<bool, 3> wanted) {
    return at::convolution_backward(g, x, w, {{load.filters}}, options.stride, options.padding, {1, 1}, false, {0, 0},
                                    1, wanted);
  };
  const auto times = interleave(
      rounds, {[&] { return seconds([&] { dense::convolution(x, w, b, options); }); },
               [&] { return seconds([&] { at::conv2d(x, w, b, options.stride, options.padding); }); },
               [&] { return seconds([&] {
                       dense::convolution_backward(g, x, w, options, {true, false, false});
                     }); },
               [&] { return seconds([&] {
                       theirs({true, false, false});
                     }); },
               [&] { return seconds([&] {
                       dense::convolution_backward(g, x, w, options, {false, true, true});
                     }); },
               [&] { return seconds([&] {
                       theirs({false, true, true});
                     }); }});
  const double work = 2e-9 * static_cast<double>(y.numel() * load.channels * load.kernel * load.kernel);
  nlohmann::json out;
  std::printf("%-18s", load.name);
  const char* passes[] = {"forward", "input gradient", "weight gradient"};
  for (size_t i = 0; i < 3; ++i) {
    const double ours = median(times[2 * i]), other = median(times[2 * i + 1]);
    const double speedup = ratio(times[2 * i + 1], times[2 * i]);
    std::printf("  %6.1f / %5.1f x%4.2f", work / ours, work / other, speedup);
    out[passes[i]] = {{"gflops", work / ours}, {"libtorch_gflops", work / other}, {"ratio", speedup}};
  }
  std::printf("\n");
  return out;
}

nlohmann::json measure_all(const Arguments& arguments) {
  tune_allocator();
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  std::printf("sgemm peak %.1f GFLOP/s\n", sgemm_peak());
  std::printf("%s, 1 thread, GFLOP/s ours / libtorch, and how many times as fast\n%-18s  %-21s%-21s%s\n",
              to_string(cpu_level()), "", "forward", "input gradient", "weight gradient");
  nlohmann::json all;
  all["cpu_level"] = to_string(cpu_level());
  for (const auto& load : loads) all[load.name] = measure(load, static_cast<int>(arguments.number("--rounds", 9)));
  return all;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "Convolutions of images, against libtorch's.",
                      .measure = measure_all,
                      .options = {{"--rounds", "N", "default 9"}}});
}
