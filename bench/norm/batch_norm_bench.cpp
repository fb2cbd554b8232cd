// SPDX-License-Identifier: Apache-2.0
// Our batch norm, forward and backward, against torch's on one thread: the price of a layer that could be synchronised.
#include <torch/nn/modules/batchnorm.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "support/interleave.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

struct Shape {
  std::vector<int64_t> sizes;
  bool channels_last;
};

double seconds_of(torch::nn::BatchNorm2d& layer, const torch::Tensor& x, const torch::Tensor& gradient, int times) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    layer->weight.mutable_grad().reset();
    layer->bias.mutable_grad().reset();
    x.mutable_grad().reset();
    layer->forward(x).backward(gradient);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

nlohmann::json compare(const Arguments&) {
  tune_allocator();
  torch::set_num_threads(1);
  nlohmann::json results = nlohmann::json::array();
  for (const Shape& shape :
       {Shape{{2, 16, 2, 2}, false}, Shape{{2, 16, 2, 2}, true}, Shape{{8, 512, 2, 2}, true},
        Shape{{16, 64, 32, 32}, false}, Shape{{16, 64, 32, 32}, true}, Shape{{64, 20, 28, 28}, true}}) {
    const auto format = shape.channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous;
    torch::nn::BatchNorm2d ours(shape.sizes[1]), torchs(shape.sizes[1]);
    norm::convert_sync_batchnorm(ours);
    const auto x = torch::randn(shape.sizes).contiguous(format).requires_grad_(true);
    const auto gradient = torch::randn(shape.sizes).contiguous(format);
    const int times = static_cast<int>(std::max<int64_t>(4, 4000000 / std::max<int64_t>(4000, x.numel())));
    const auto seconds = interleave(15, {[&] { return seconds_of(ours, x, gradient, times); },
                                         [&] { return seconds_of(torchs, x, gradient, times); }});
    const std::string name = text(c10::IntArrayRef(shape.sizes), shape.channels_last ? " channels-last" : "");
    std::printf("%-36s ours %9.1f us, torch's %9.1f us, ours / torch's %.2f\n", name.c_str(), 1e6 * median(seconds[0]),
                1e6 * median(seconds[1]), ratio(seconds[0], seconds[1]));
    results.push_back({{"shape", name},
                       {"us_ours", 1e6 * median(seconds[0])},
                       {"us_torch", 1e6 * median(seconds[1])},
                       {"ratio", ratio(seconds[0], seconds[1])}});
  }
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "Synchronised batch norms on one device, against torch's.", .measure = compare});
}
