// SPDX-License-Identifier: Apache-2.0
#include "cli/bandwidth.h"

#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/zeros.h>

#include <chrono>

#include "lockstep/base/detail/median.h"

namespace lockstep::cli {
namespace {

// The same number of calls on all ranks, whatever each of them measures.
int calls_for(int64_t bytes) {
  return bytes <= 1 << 16 ? 200 : bytes <= 1 << 22 ? 40 : 7;
}

double seconds_of_one(const comm::Group& group, const at::Tensor& tensor) {
  const auto start = std::chrono::steady_clock::now();
  group.all_reduce(tensor).wait();
  if (tensor.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(tensor.device().index());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::array<double, bandwidth_bytes.size()> measure_all_reduce(const comm::Group& group, c10::Device device) {
  std::array<double, bandwidth_bytes.size()> medians{};
  for (size_t s = 0; s < bandwidth_bytes.size(); ++s) {
    const auto tensor = at::zeros({bandwidth_bytes[s] / 4}, at::device(device).dtype(at::kFloat));
    std::vector<double> seconds;
    for (int call = 0; call < calls_for(bandwidth_bytes[s]); ++call) seconds.push_back(seconds_of_one(group, tensor));
    const auto warm = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 5);
    medians[s] = median({warm, seconds.end()});
  }
  return medians;
}

}  // namespace lockstep::cli
