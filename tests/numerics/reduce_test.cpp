// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/reduce.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<at::Tensor> contributions(int64_t count, int64_t length, at::ScalarType dtype) {
  std::vector<at::Tensor> tensors;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  for (int64_t r = 0; r < count; ++r) {
    const auto values = at::randn({length}, generator, at::kDouble) * 100;
    tensors.push_back(dtype == at::kBool ? values > 50 : values.to(dtype));
  }
  return tensors;
}

// One addition as torch does it: rounded to the dtype.
at::Tensor combine(ReduceOp op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case ReduceOp::min:
      return at::minimum(a, b);
    case ReduceOp::max:
      return at::maximum(a, b);
    default:
      return a.scalar_type() == at::kBool ? at::logical_or(a, b) : a + b;
  }
}

at::Tensor by_definition(ReduceOp op, const std::vector<at::Tensor>& leaves, int64_t begin, int64_t end) {
  if (end - begin == 1) return leaves[begin].clone();
  int64_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return combine(op, by_definition(op, leaves, begin, begin + half), by_definition(op, leaves, begin + half, end));
}

std::vector<const std::byte*> sources_of(const std::vector<at::Tensor>& tensors) {
  std::vector<const std::byte*> pointers;
  for (const auto& tensor : tensors) pointers.push_back(static_cast<const std::byte*>(tensor.const_data_ptr()));
  return pointers;
}

std::vector<std::byte*> destinations_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::byte*> pointers;
  for (const auto& tensor : tensors) pointers.push_back(static_cast<std::byte*>(tensor.mutable_data_ptr()));
  return pointers;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kBool};

TEST(Reduce, EveryLevelDtypeAndOperationEqualsTheTreeOfSingleAdditions) {
  for (CpuLevel level : available_cpu_levels()) {
    const ScopedCpuLevel scoped(level);
    for (auto dtype : kTypes)
      for (auto op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max})
        for (int64_t count : {1, 2, 3, 4, 7, 8, 13})
          for (int64_t length : {0, 1, 15, 1027}) {
            auto tensors = contributions(count, length, dtype);
            const auto expected = by_definition(op, tensors, 0, count);
            // In place: every contribution becomes the result.
            reduce(TreeProgram::of_leaves(count), op, dtype, sources_of(tensors), destinations_of(tensors), length);
            for (const auto& tensor : tensors)
              ASSERT_TRUE(at::equal(tensor, expected))
                  << to_string(level) << " " << dtype << " " << name_of(op) << " of " << count << " x " << length;
          }
  }
}

TEST(Reduce, MeanDividesTheSumOnce) {
  for (auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    auto tensors = contributions(3, 100, dtype);
    const auto sum = by_definition(ReduceOp::sum, tensors, 0, 3);
    reduce(TreeProgram::of_leaves(3), ReduceOp::mean, dtype, sources_of(tensors), destinations_of(tensors), 100, 3);
    EXPECT_TRUE(at::equal(tensors[1], sum / 3)) << dtype;
  }
}

TEST(Reduce, NodesOfBlocksMeetInTheSameBitsAsLeaves) {
  const int64_t replicas = 11, length = 700;
  const auto leaves = contributions(replicas, length, at::kFloat);
  const auto expected = by_definition(ReduceOp::sum, leaves, 0, replicas);
  const Placement placement({3, 0, 5, 2, 1});
  std::vector<Interval> spans;
  std::vector<at::Tensor> nodes;
  for (int64_t p = 0; p < placement.processes(); ++p) {
    const Interval block = placement.block(p);
    const auto program = TreeProgram::of_block(replicas, block);
    std::vector<at::Tensor> mine(leaves.begin() + block.begin, leaves.begin() + block.end), out;
    for (size_t k = 0; k < program.results().size(); ++k) out.push_back(at::empty({length}));
    reduce(program, ReduceOp::sum, at::kFloat, sources_of(mine), destinations_of(out), length);
    spans.insert(spans.end(), program.results().begin(), program.results().end());
    nodes.insert(nodes.end(), out.begin(), out.end());
  }
  std::vector<at::Tensor> result{at::empty({length})};
  reduce(TreeProgram::of_nodes(replicas, spans), ReduceOp::sum, at::kFloat, sources_of(nodes), destinations_of(result),
         length);
  EXPECT_TRUE(at::equal(result[0], expected));
}

TEST(Reduce, AnotherOrderOfAdditionsGivesOtherBits) {
  auto tensors = contributions(8, 4096, at::kFloat);
  auto chain = tensors[0].clone();
  for (int64_t r = 1; r < 8; ++r) chain += tensors[r];
  EXPECT_FALSE(at::equal(chain, by_definition(ReduceOp::sum, tensors, 0, 8)));
}

// All 65536 values of both 16-bit formats, and their neighbourhoods when two are added.
TEST(Reduce, SixteenBitFormatsRoundAsTorchDoes) {
  for (CpuLevel level : available_cpu_levels()) {
    const ScopedCpuLevel scoped(level);
    for (auto dtype : {at::kHalf, at::kBFloat16}) {
      const auto all = at::arange(0, 65536, at::kInt).to(at::kShort).view(dtype);
      for (double other : {0.0, 1.0, 1e-7, -6e-5, 65504.0, 3.1e38, -1.0 / 3}) {
        const auto addend = at::full({65536}, other, at::kDouble).to(dtype);
        const auto expected = all + addend;
        std::vector<at::Tensor> in{all, addend}, out{at::empty_like(all)};
        reduce(TreeProgram::of_leaves(2), ReduceOp::sum, dtype, sources_of(in), destinations_of(out), 65536);
        const auto same = at::logical_or(out[0].view(at::kShort) == expected.view(at::kShort),
                                         at::logical_and(out[0].isnan(), expected.isnan()));
        EXPECT_TRUE(same.all().item<bool>()) << to_string(level) << " " << dtype << " + " << other;
      }
    }
  }
}

TEST(Reduce, ANaNAnywhereGivesANaN) {
  for (auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (auto op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max})
      for (int64_t which = 0; which < 3; ++which) {
        auto tensors = contributions(3, 9, dtype);
        tensors[which][4].fill_(std::numeric_limits<double>::quiet_NaN());
        reduce(TreeProgram::of_leaves(3), op, dtype, sources_of(tensors), destinations_of(tensors), 9);
        EXPECT_TRUE(tensors[0].isnan()[4].item<bool>());
        EXPECT_EQ(tensors[0].isnan().sum().item<int64_t>(), 1);
      }
}

TEST(Reduce, RefusesADtypeItDoesNotKnow) {
  EXPECT_FALSE(is_reducible(at::kComplexFloat));
  EXPECT_THROW(reduce(TreeProgram::of_leaves(1), ReduceOp::sum, at::kComplexFloat, {}, {}, 0), Error);
}

}  // namespace
}  // namespace lockstep
