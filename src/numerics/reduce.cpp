// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/reduce.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"
#include "numerics/cpu/reduce_kernel.h"

namespace lockstep {
namespace {

std::optional<detail::ReduceType> reduce_type(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return detail::ReduceType::f32;
    case c10::ScalarType::Double:
      return detail::ReduceType::f64;
    case c10::ScalarType::Half:
      return detail::ReduceType::f16;
    case c10::ScalarType::BFloat16:
      return detail::ReduceType::bf16;
    case c10::ScalarType::Int:
      return detail::ReduceType::i32;
    case c10::ScalarType::Long:
      return detail::ReduceType::i64;
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
      return detail::ReduceType::boolean;
    default:
      return std::nullopt;
  }
}

}  // namespace

const char* name_of(ReduceOp op) {
  constexpr const char* names[] = {"sum", "mean", "min", "max"};
  return names[static_cast<int>(op)];
}

bool is_reducible(c10::ScalarType dtype) {
  return reduce_type(dtype).has_value();
}

TreeProgram TreeProgram::of_block(int64_t leaves, Interval block) {
  std::vector<Interval> nodes;
  for (int64_t leaf = block.begin; leaf < block.end; ++leaf) nodes.push_back({leaf, leaf + 1});
  return of_nodes(leaves, nodes);
}

TreeProgram TreeProgram::of_nodes(int64_t leaves, std::span<const Interval> nodes) {
  TreeProgram program;
  struct Nothing {};
  uint8_t merged = 0;
  auto merge = [&](Nothing&, Nothing&&) { ++merged; };
  TreeAccumulator<Nothing, decltype(merge)> accumulator(leaves, merge);
  for (const Interval& node : nodes) {
    merged = 0;
    accumulator.push(node, Nothing{});
    program.merges_.push_back(merged);
    program.depth_ = std::max<int64_t>(program.depth_, accumulator.entries().size() + merged);
  }
  for (const auto& entry : accumulator.entries()) program.results_.push_back(entry.interval);
  return program;
}

void reduce(const TreeProgram& program, ReduceOp op, c10::ScalarType dtype, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, int64_t count, int64_t divisor) {
  const auto type = reduce_type(dtype);
  require(type.has_value(), "reduce", "dtype is ", dtype,
          ", expected float32, float64, float16, bfloat16, int32, int64 or bool");
  const bool one_result = program.results().size() == 1;
  LOCKSTEP_ASSERT(program.depth() <= detail::kReduceMaxDepth);
  LOCKSTEP_ASSERT(static_cast<int64_t>(sources.size()) == program.sources());
  LOCKSTEP_ASSERT(one_result || destinations.size() == program.results().size());
  if (program.results().empty()) return;
  const detail::ReduceJob job{
      .merges = program.merges().data(),
      .sources = program.sources(),
      .source = sources.data(),
      .destinations = static_cast<int64_t>(destinations.size()),
      .destination = destinations.data(),
      .one_result = one_result,
      .count = count,
      .divisor = op == ReduceOp::mean ? divisor : 1,
      .type = *type,
      .kind = op == ReduceOp::min   ? detail::ReduceKind::min
              : op == ReduceOp::max ? detail::ReduceKind::max
                                    : detail::ReduceKind::sum,
  };
  using namespace detail;
  LOCKSTEP_SELECT_ISA(reduce_kernel)(job);
}

}  // namespace lockstep
