// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/divergence.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

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

// Processes or replicas, as words.
std::string words_for(const std::vector<int64_t>& who, const char* kind) {
  std::string out = text(kind, who.size() == 1 ? " " : (std::string_view(kind) == "process" ? "es " : "s "));
  for (size_t i = 0; i < who.size(); ++i) out += text(i == 0 ? "" : i + 1 == who.size() ? " and " : ", ", who[i]);
  return out;
}

// Throws where those who hold a tensor have different bits of it.
void vote(const std::vector<int64_t>& bits, const char* kind, const std::string& tensor, int64_t step) {
  std::map<int64_t, int64_t> votes;
  for (const int64_t one : bits) ++votes[one];
  if (votes.size() == 1) return;
  const auto most = std::ranges::max_element(votes, {}, [](const auto& entry) { return entry.second; });
  const bool decides = 2 * most->second > std::ssize(bits);
  const int64_t right = decides ? most->first : bits[0];
  std::vector<int64_t> others;
  for (size_t i = 0; i < bits.size(); ++i)
    if (bits[i] != right) others.push_back(static_cast<int64_t>(i));
  const std::string other_side = decides ? text("that of the other ", most->second) : words_for({0}, kind) + "'s";
  fail("watch_divergence", tensor, " of ", words_for(others, kind), " differs from ", other_side, " after step ", step,
       ", expected the same bits on all", decides ? "" : " (of three or more the most are right)");
}

}  // namespace

int64_t hash_of(const at::Tensor& tensor) {
  const auto dense = tensor.layout() == at::kStrided ? tensor.detach() : tensor.detach().to_dense();
  const auto bytes = dense.to(at::kCPU).contiguous();
  return static_cast<int64_t>(
      hash_bytes(static_cast<const uint8_t*>(bytes.const_data_ptr()), static_cast<int64_t>(bytes.nbytes())));
}

at::Tensor hashes_of(const NamedTensors& tensors) {
  const auto hashes = at::empty({static_cast<int64_t>(tensors.size())}, at::kLong);
  auto* out = hashes.mutable_data_ptr<int64_t>();
  for (const auto& [name, tensor] : tensors) *out++ = hash_of(tensor);
  return hashes;
}

// Replicas of a process share its weights: these are one voice, however many the replicas are.
void require_equal_hashes(const at::Tensor& hashes, const NamedTensors& tensors, const Compared& compared) {
  const auto values = hashes.accessor<int64_t, 2>();
  for (int64_t t = 0; t < hashes.size(1); ++t) {
    const bool of_processes = t < static_cast<int64_t>(compared.of_processes);
    std::vector<int64_t> bits;
    if (of_processes)
      for (int64_t p = 0; p < compared.placement.processes(); ++p)
        bits.push_back(values[compared.placement.block(p).begin][t]);
    else
      for (int64_t r = 0; r < hashes.size(0); ++r) bits.push_back(values[r][t]);
    vote(bits, of_processes ? "process" : "replica", tensors[t].first, compared.step);
  }
}

}  // namespace lockstep::parallel
