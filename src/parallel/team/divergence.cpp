// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/divergence.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

// Four words at a time, each multiplied by an odd number of its own and folded: a change of any bit changes the hash,
// and it runs at the speed of memory.
uint64_t hash_bytes(const uint8_t* bytes, int64_t count) {
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15u;
  uint64_t lanes[4] = {1, 2, 3, 4};
  const auto mix = [](uint64_t sum, uint64_t word) {
    sum = (sum ^ word) * kPrime;
    return sum ^ sum >> 29;
  };
  int64_t i = 0;
  for (; i + 32 <= count; i += 32)
    for (int lane = 0; lane < 4; ++lane) {
      uint64_t word;
      std::memcpy(&word, bytes + i + 8 * lane, 8);
      lanes[lane] = mix(lanes[lane], word);
    }
  for (; i < count; ++i) lanes[0] = mix(lanes[0], bytes[i]);
  uint64_t sum = static_cast<uint64_t>(count);
  for (const uint64_t lane : lanes) sum = mix(sum, lane);
  return sum;
}

}  // namespace

at::Tensor hashes_of(const NamedTensors& tensors) {
  const auto hashes = at::empty({static_cast<int64_t>(tensors.size())}, at::kLong);
  auto* out = hashes.mutable_data_ptr<int64_t>();
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = tensor.detach().to(at::kCPU).contiguous();
    *out++ = static_cast<int64_t>(
        hash_bytes(static_cast<const uint8_t*>(bytes.const_data_ptr()), static_cast<int64_t>(bytes.nbytes())));
  }
  return hashes;
}

void require_equal_hashes(const at::Tensor& hashes, const NamedTensors& tensors, int64_t step) {
  const auto values = hashes.accessor<int64_t, 2>();
  for (int64_t r = 1; r < hashes.size(0); ++r)
    for (int64_t t = 0; t < hashes.size(1); ++t)
      require(values[r][t] == values[0][t], "watch_divergence", tensors[t].first, " of replica ", r,
              " differs from replica 0's after step ", step, ", expected the same bits on all");
}

}  // namespace lockstep::parallel
