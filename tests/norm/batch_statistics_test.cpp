// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/detail/batch_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::norm {
namespace {

at::Tensor moments_of(const at::Tensor& rows) {
  const at::Tensor mean = rows.size(0) > 0 ? rows.mean(0) : at::zeros(rows.size(1), rows.options());
  return at::stack(
      {at::full(rows.size(1), static_cast<double>(rows.size(0)), rows.options()), mean, (rows - mean).square().sum(0)});
}

at::Tensor random_rows(int64_t rows, int64_t channels) {
  return at::randn({rows, channels}, at::kDouble) * 3 + at::arange(channels, at::kDouble);
}

TEST(BatchStatistics, MergedMomentsAreThoseOfTheJoinedBatch) {
  const std::vector<std::vector<int64_t>> shares{{5}, {4, 3}, {1, 0, 6}, {0, 0, 2}, {3, 3, 2, 2, 2, 0, 1, 1}, {0, 0}};
  for (const auto& sizes : shares) {
    int64_t total = 0;
    for (int64_t size : sizes) total += size;
    const at::Tensor joined = random_rows(total, 4);
    std::vector<at::Tensor> each;
    int64_t from = 0;
    for (int64_t size : sizes) {
      each.push_back(moments_of(joined.narrow(0, from, size)));
      from += size;
    }
    const at::Tensor merged = merge_moments(at::stack(each));
    EXPECT_TRUE(at::allclose(merged, moments_of(joined), 1e-13, 1e-13)) << merged << moments_of(joined);
    EXPECT_TRUE(at::equal(merged, merge_moments(at::stack(each).view({static_cast<int64_t>(sizes.size()), -1}))));
  }
}

TEST(BatchStatistics, EmptySharesChangeNoBit) {
  const at::Tensor a = moments_of(random_rows(3, 5)), b = moments_of(random_rows(7, 5));
  const at::Tensor none = at::full_like(a, 17) * at::tensor({0., 1., 1.}, at::kDouble).unsqueeze(1);
  EXPECT_TRUE(at::equal(merge_moments(at::stack({none, a})), a));
  EXPECT_TRUE(at::equal(merge_moments(at::stack({a, none, b, none})), merge_moments(at::stack({a, b}))));
}

TEST(BatchStatistics, SumsFollowTheTree) {
  const at::Tensor x = at::randn({5, 3});
  EXPECT_TRUE(at::equal(sum_as_tree(x), ((x[0] + x[1]) + (x[2] + x[3])) + x[4]));
  EXPECT_TRUE(at::equal(sum_as_tree(x.narrow(0, 0, 1)), x[0]));
}

TEST(BatchStatistics, RunningOnesMoveByMomentumAndStayWhereTheBatchIsEmpty) {
  const at::Tensor rows = random_rows(9, 2), mean = at::ones(2), var = at::ones(2);
  move_running_statistics(mean, var, moments_of(rows), 0.25);
  EXPECT_TRUE(at::allclose(mean, (0.75 + 0.25 * rows.mean(0)).to(at::kFloat)));
  EXPECT_TRUE(at::allclose(var, (0.75 + 0.25 * rows.var(0)).to(at::kFloat)));
  const at::Tensor before = mean.clone();
  move_running_statistics(mean, var, moments_of(random_rows(0, 2)), 0.25);
  EXPECT_TRUE(at::equal(mean, before));
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf}) {  // of which the last takes the general way
    const at::Tensor one = random_rows(1, 2), means = at::ones(2, type), vars = at::full({2}, 0.5, type);
    move_running_statistics(means, vars, moments_of(one), 0.25);
    EXPECT_TRUE(at::allclose(means, (0.75 + 0.25 * one[0]).to(type)));
    EXPECT_TRUE(at::equal(vars, at::full({2}, 0.5, type)));
  }
  move_running_statistics({}, {}, moments_of(rows), 0.25);
}

TEST(BatchStatistics, AloneNothingIsExchanged) {
  const at::Tensor mine = moments_of(random_rows(4, 3));
  EXPECT_TRUE(exchange_moments(nullptr, mine).is_same(mine));
  EXPECT_TRUE(exchange_sums(nullptr, mine).is_same(mine));
  EXPECT_THROW(merge_moments(at::zeros({2, 4}, at::kDouble)), Error);
  EXPECT_THROW(merge_moments(at::zeros({2, 3, 4})), Error);
}

}  // namespace
}  // namespace lockstep::norm
