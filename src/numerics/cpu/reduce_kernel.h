// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

// Shared by numerics/reduce.cpp and the three builds of numerics/cpu/reduce_kernel.cpp: plain data only, see
// base/detail/instruction_set.h.
namespace lockstep::detail {

enum class ReduceType : uint8_t { f32, f64, f16, bf16, i32, i64, boolean };
enum class ReduceKind : uint8_t { sum, min, max };

constexpr int64_t kReduceMaxDepth = 64;

struct ReduceJob {
  const uint8_t* merges;
  int64_t sources;
  const std::byte* const* source;
  int64_t destinations;
  std::byte* const* destination;
  bool one_result;
  int64_t count;
  int64_t divisor;  // 1: no division
  ReduceType type;
  ReduceKind kind;
};

LOCKSTEP_DECLARE_ISA(void reduce_kernel(const ReduceJob& job))

}  // namespace lockstep::detail
