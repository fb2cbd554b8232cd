// SPDX-License-Identifier: Apache-2.0
// Sums of more sources than one launch of the GPU's kernel takes. The stages are run here as the kernel runs them.
#include "comm/cuda/stages.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/numerics/reduce.h"

namespace lockstep::comm {
namespace {

/// One element through one launch: what is on the stack at the end.
std::vector<float> launch(const std::vector<float>& sources, const std::vector<uint8_t>& merges) {
  std::vector<float> stack;
  for (size_t k = 0; k < sources.size(); ++k) {
    stack.push_back(sources[k]);
    for (int m = merges[k]; m > 0; --m) {
      const float right = stack.back();
      stack.pop_back();
      stack.back() += right;
    }
  }
  return stack;
}

std::vector<float> in_stages(const TreeProgram& program, const std::vector<float>& values, int64_t most) {
  std::vector<float> carried;
  for (const ReduceStage& stage : stages_of(program.merges(), most)) {
    EXPECT_EQ(stage.carried, std::ssize(carried));
    EXPECT_LE(stage.carried + stage.count, most);
    EXPECT_GE(stage.count, 1);
    std::vector<float> sources = carried;
    std::vector<uint8_t> merges(carried.size(), 0);
    for (int64_t k = stage.first; k < stage.first + stage.count; ++k) {
      sources.push_back(values[k]);
      merges.push_back(program.merges()[k]);
    }
    carried = launch(sources, merges);
    EXPECT_EQ(stage.left, std::ssize(carried));
  }
  return carried;
}

TEST(ReduceStages, AddInTheOrderOfOneLaunch) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const int64_t leaves : {1, 2, 63, 64, 65, 128, 130, 1000})
    for (const int64_t most : {16, 64}) {
      std::vector<float> values(leaves);
      for (float& value : values) value = normal(random);
      std::vector<const std::byte*> sources;
      for (const float& value : values) sources.push_back(reinterpret_cast<const std::byte*>(&value));
      float expected = 0;
      std::byte* const to = reinterpret_cast<std::byte*>(&expected);
      const auto program = TreeProgram::of_leaves(leaves);
      reduce(program, ReduceOp::sum, c10::ScalarType::Float, sources, {&to, 1}, 1);
      EXPECT_EQ(in_stages(program, values, most), std::vector{expected}) << leaves << " leaves, " << most << " a stage";
    }
}

TEST(ReduceStages, OfABlockLeaveItsNodes) {
  const auto program = TreeProgram::of_block(200, {3, 150});
  const std::vector<float> ones(147, 1);
  const auto nodes = in_stages(program, ones, 16);
  ASSERT_EQ(nodes.size(), program.results().size());
  for (size_t n = 0; n < nodes.size(); ++n) EXPECT_EQ(nodes[n], static_cast<float>(program.results()[n].size()));
}

}  // namespace
}  // namespace lockstep::comm
