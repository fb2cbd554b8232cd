// SPDX-License-Identifier: Apache-2.0
// Gradients that are added up while they come give the bits of those that are added up at the end.
#include "parallel/gradients/arrivals.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "lockstep/numerics/random.h"

namespace lockstep::parallel {
namespace {

using torch::Tensor;
using Leaves = std::vector<std::vector<Tensor>>;

constexpr int64_t kParameters = 3, kNumbers = 1000;

// Every seventh gradient does not come.
Tensor gradient_of(int64_t replica, int64_t parameter) {
  if ((replica + parameter) % 7 == 3) return {};
  return normal_(torch::empty({kNumbers}), RandomKey{1}.fold(replica).fold(parameter));
}

Leaves leaves_of(int64_t members) {
  Leaves leaves(members);
  for (auto& member : leaves)
    for (int64_t p = 0; p < kParameters; ++p) member.push_back(torch::zeros({kNumbers}, torch::requires_grad()));
  return leaves;
}

void bring(GradientArrivals& arrivals, int64_t member, Interval block) {
  arrivals.expect(member);
  for (int64_t p = 0; p < kParameters; ++p) {
    arrivals.leaves()[member][p].mutable_grad() = gradient_of(block.begin + member, p);
    EXPECT_TRUE(arrivals.arrive(member, p));
    EXPECT_FALSE(arrivals.arrive(member, p));
    EXPECT_EQ(arrivals.came(member, p), gradient_of(block.begin + member, p).defined());
  }
}

// The results of a program, [result][number].
Tensor sums_of(const TreeProgram& program, const std::vector<Tensor>& rows) {
  const Tensor zeros = torch::zeros({kNumbers}),
               out = torch::empty({static_cast<int64_t>(program.results().size()), kNumbers});
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (const Tensor& row : rows)
    from.push_back(static_cast<const std::byte*>((row.defined() ? row : zeros).const_data_ptr()));
  for (int64_t r = 0; r < out.size(0); ++r) to.push_back(static_cast<std::byte*>(out[r].mutable_data_ptr()));
  reduce(program, ReduceOp::sum, torch::kFloat, from, to, kNumbers);
  return out;
}

int64_t defined(const GradientArrivals& arrivals, int64_t parameter) {
  return std::ranges::count_if(arrivals.leaves(), [&](const auto& m) { return m[parameter].grad().defined(); });
}

struct Sharing {
  int64_t replicas;
  Interval block;
};

TEST(GradientArrivals, FoldToTheBitsOfTheTree) {
  for (const auto& [replicas, block] :
       {Sharing{1, {0, 1}}, Sharing{2, {0, 2}}, Sharing{3, {0, 3}}, Sharing{4, {0, 4}}, Sharing{8, {0, 8}},
        Sharing{8, {3, 7}}, Sharing{11, {2, 11}}, Sharing{64, {0, 64}}}) {
    SCOPED_TRACE(testing::Message() << replicas << " replicas, " << block.begin << " to " << block.end);
    const TreeProgram program = TreeProgram::of_block(replicas, block);
    GradientArrivals arrivals(leaves_of(block.size()), program, replicas);
    arrivals.fold(true);
    std::vector<int64_t> order(block.size());
    std::iota(order.begin(), order.end(), 0);
    for (int step = 0; step < 3; ++step) {  // a step on one thread, then on several, in two orders
      std::vector<std::thread> threads;
      for (const int64_t member : order)
        if (step == 0)
          bring(arrivals, member, block);
        else
          threads.emplace_back([&, member, block = block] { bring(arrivals, member, block); });
      for (auto& thread : threads) thread.join();
      for (int64_t p = 0; p < kParameters; ++p) {
        std::vector<Tensor> all;
        for (int64_t r = block.begin; r < block.end; ++r) all.push_back(gradient_of(r, p));
        EXPECT_TRUE(torch::equal(sums_of(arrivals.rest(), arrivals.rows(p)), sums_of(program, all)));
      }
      for (int64_t m = 0; m < block.size(); ++m) arrivals.clear(m);
      arrivals.reset();
      std::ranges::reverse(order);
    }
  }
}

TEST(GradientArrivals, KeepFewWhereReplicasTakeTurns) {
  for (const auto& [replicas, most] : {std::pair<int64_t, int64_t>{2, 2}, {4, 3}, {8, 5}, {16, 7}, {64, 10}}) {
    GradientArrivals arrivals(leaves_of(replicas), TreeProgram::of_leaves(replicas), replicas);
    arrivals.fold(true);
    int64_t seen = 0;
    for (int64_t m = 0; m < replicas; ++m) {
      for (int64_t p = 0; p < kParameters; ++p) arrivals.leaves()[m][p].mutable_grad() = torch::ones({kNumbers});
      for (int64_t p = 0; p < kParameters; ++p) seen = std::max(seen, defined(arrivals, p));
      arrivals.expect(m);
      for (int64_t p = 0; p < kParameters; ++p) arrivals.arrive(m, p);
    }
    EXPECT_EQ(seen, most) << replicas;
  }
}

TEST(GradientArrivals, GoOnWithSomeOfTheParameters) {
  GradientArrivals arrivals(leaves_of(8), TreeProgram::of_leaves(8), 8);
  arrivals.fold(true);
  for (int64_t m = 0; m < 8; ++m) bring(arrivals, m, {0, 8});
  const std::vector<int64_t> kept{2, 0};
  const GradientArrivals rest = arrivals.of(kept);
  for (size_t k = 0; k < kept.size(); ++k) {
    EXPECT_TRUE(torch::equal(sums_of(rest.rest(), rest.rows(static_cast<int64_t>(k))),
                             sums_of(arrivals.rest(), arrivals.rows(kept[k]))));
    for (int64_t m = 0; m < 8; ++m) EXPECT_EQ(rest.came(m, static_cast<int64_t>(k)), arrivals.came(m, kept[k]));
  }
}

}  // namespace
}  // namespace lockstep::parallel
