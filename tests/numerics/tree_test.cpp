// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/tree.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// A sum written as text shows the order of its additions: (0+1)+2 is not 0+(1+2).
struct Write {
  void operator()(std::string& left, std::string&& right) const { left = text("(", left, "+", right, ")"); }
};
using Writer = TreeAccumulator<std::string, Write>;

// The tree from its definition, top down: a node splits at the largest power of two below its width.
std::string definition(int64_t begin, int64_t end) {
  if (end - begin == 1) return std::to_string(begin);
  int64_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return text("(", definition(begin, begin + half), "+", definition(begin + half, end), ")");
}

void push_leaves(Writer& writer, Interval block) {
  for (int64_t leaf = block.begin; leaf < block.end; ++leaf) writer.push({leaf, leaf + 1}, std::to_string(leaf));
}

TEST(Tree, OneAfterAnotherGivesTheOrderOfTheDefinition) {
  for (int64_t leaves = 1; leaves <= 33; ++leaves) {
    Writer writer(leaves, {});
    push_leaves(writer, {0, leaves});
    ASSERT_TRUE(writer.complete()) << leaves;
    EXPECT_EQ(writer.entries()[0].value, definition(0, leaves)) << leaves;
  }
}

// Every process sums its block, then the blocks' nodes meet, in the order of the blocks.
std::string summed_over(const std::vector<int64_t>& counts) {
  const Placement placement(counts);
  Writer root(placement.replicas(), {});
  for (int64_t p = 0; p < placement.processes(); ++p) {
    Writer block(placement.replicas(), {});
    push_leaves(block, placement.block(p));
    for (auto& entry : block.entries()) root.push(entry.interval, entry.value);
  }
  EXPECT_TRUE(root.complete());
  return root.entries()[0].value;
}

TEST(Tree, EveryContiguousSplitInTwoAndThreeAddsInTheSameOrder) {
  for (int64_t leaves = 1; leaves <= 33; ++leaves) {
    const std::string expected = definition(0, leaves);
    for (int64_t first = 0; first <= leaves; ++first)
      for (int64_t second = 0; first + second <= leaves; ++second)
        ASSERT_EQ(summed_over({first, second, leaves - first - second}), expected) << leaves;
  }
}

// All 2^(R-1) contiguous splits of R replicas into non-empty blocks.
TEST(Tree, EveryContiguousSplitAddsInTheSameOrder) {
  for (int64_t leaves = 1; leaves <= 12; ++leaves) {
    const std::string expected = definition(0, leaves);
    for (uint32_t cuts = 0; cuts < 1u << (leaves - 1); ++cuts) {
      std::vector<int64_t> counts{1};
      for (int64_t i = 0; i + 1 < leaves; ++i) (cuts >> i & 1) ? counts.push_back(1) : void(++counts.back());
      ASSERT_EQ(summed_over(counts), expected) << leaves << " leaves, cuts " << cuts;
    }
  }
}

// A split of 33 into more blocks than three: whatever happens inside two neighbouring blocks is covered by cutting
// their union anywhere, so every pair of cuts inside a third set of fixed blocks is tried.
TEST(Tree, LongSplitsOfThirtyThreeAddInTheSameOrder) {
  for (int64_t width = 1; width <= 33; ++width) {
    for (int64_t offset = 0; offset < width; ++offset) {
      std::vector<int64_t> counts;
      if (offset > 0) counts.push_back(offset);
      for (int64_t left = 33 - offset; left > 0; left -= width) counts.push_back(std::min(left, width));
      ASSERT_EQ(summed_over(counts), definition(0, 33));
    }
  }
}

TEST(Tree, ABlockOwnsAtMostTwoLogNodesAndAnAlignedOneOwnsOne) {
  for (int64_t leaves = 1; leaves <= 33; ++leaves) {
    int64_t log = 0;
    while (int64_t{1} << log < leaves) ++log;
    for (int64_t begin = 0; begin <= leaves; ++begin)
      for (int64_t end = begin; end <= leaves; ++end) {
        const auto nodes = block_nodes(leaves, {begin, end});
        EXPECT_LE(static_cast<int64_t>(nodes.size()), std::max<int64_t>(2 * log, 1));
        int64_t at = begin;
        for (const Interval& node : nodes) {
          EXPECT_EQ(node.begin, at);
          at = node.end;
        }
        EXPECT_EQ(at, end);
      }
  }
  EXPECT_EQ(block_nodes(8, {4, 8}), (std::vector<Interval>{{4, 8}}));
  EXPECT_EQ(block_nodes(8, {3, 6}), (std::vector<Interval>{{3, 4}, {4, 6}}));
  EXPECT_EQ(block_nodes(7, {4, 7}), (std::vector<Interval>{{4, 7}}));
}

TEST(Tree, AnAccumulatorThatStartsAtZeroHoldsAtMostLogValues) {
  Writer writer(1000, {});
  for (int64_t leaf = 0; leaf < 1000; ++leaf) {
    writer.push({leaf, leaf + 1}, "");
    EXPECT_LE(writer.entries().size(), 10u);
  }
}

TEST(Tree, RefusesABlockThatIsNoPartOfIt) {
  EXPECT_THROW(block_nodes(4, {2, 5}), Error);
}

}  // namespace
}  // namespace lockstep
