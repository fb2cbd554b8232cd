// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/metric.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>
#include <vector>

#include "lockstep/metrics/accuracy.h"
#include "lockstep/metrics/confusion_matrix.h"
#include "lockstep/metrics/frechet.h"
#include "lockstep/metrics/mean.h"
#include "lockstep/numerics/placement.h"
#include "random_scores.h"
#include "support/error_of.h"

namespace lockstep::metrics {
namespace {

using test::error_of;
using ::testing::HasSubstr;

at::Tensor gathered(const std::vector<at::Tensor>& states) {
  return at::stack(states);
}

TEST(Metric, MistakesAreErrorsThatSayWhatWasGot) {
  Accuracy accuracy;
  EXPECT_THAT(error_of([&] {
                accuracy.add(at::zeros({2, 3}), at::tensor({0, 3}, at::kLong));
              }),
              HasSubstr("the target 3, expected a class in [0, 3)"));
  EXPECT_NE(error_of([&] { accuracy.add(at::zeros({2, 3}), at::zeros({3}, at::kLong)); }), "no error");
  EXPECT_NE(error_of([&] { accuracy.add(at::zeros({2, 3}), at::zeros({2})); }), "no error");
  EXPECT_NE(error_of([&] { accuracy.add(at::zeros({2, 3}, at::kLong), at::zeros({2}, at::kLong)); }), "no error");
  EXPECT_THAT(error_of([&] { accuracy.merge(at::zeros({4, 3}, at::kDouble)); }), HasSubstr("[replicas, 2]"));
  EXPECT_NE(error_of([&] { accuracy.merge(at::zeros({4, 2})); }), "no error");
  ConfusionMatrix matrix(3);
  EXPECT_NE(error_of([&] { matrix.add(at::tensor({3}, at::kLong), at::tensor({0}, at::kLong)); }), "no error");
  EXPECT_NE(error_of([&] { matrix.add(at::zeros({1, 4}), at::tensor({0}, at::kLong)); }), "no error");
  FeatureMoments moments(3);
  EXPECT_NE(error_of([&] { moments.add(at::zeros({2, 4})); }), "no error");
  EXPECT_NE(error_of([&] { frechet_distance(moments, moments); }), "no error");
}

// Each metric over 64 examples, in replicas' shares of them.
template <class M>
M over(Interval rows, M metric) {
  const at::Tensor scores = random_scores({64, 5}, 7), targets = random_labels(64, 5, 8);
  const at::Tensor mine = scores.narrow(0, rows.begin, rows.size());
  if constexpr (std::is_same_v<M, FeatureMoments>)
    metric.add(mine);
  else if constexpr (std::is_same_v<M, Mean>)
    for (int64_t i = 0; i < rows.size(); ++i) metric.add(mine[i][0].template item<double>(), 1 + i % 3);
  else
    metric.add(mine, targets.narrow(0, rows.begin, rows.size()));
  return metric;
}

template <class M>
void expect_counts_of_any_split_are_those_of_the_whole(const M& empty) {
  const M whole = over({0, 64}, empty);
  for (const int64_t replicas : {1, 2, 3, 7, 8, 70}) {
    std::vector<at::Tensor> states;
    const Placement shares = Placement::even(64, replicas);
    for (int64_t r = 0; r < replicas; ++r) states.push_back(over(shares.block(r), empty).state());
    M merged = empty;
    merged.merge(gathered(states));
    EXPECT_TRUE(same_bits(merged.state(), whole.state())) << replicas;
    EXPECT_EQ(merged.value(), whole.value());
  }
}

TEST(Metric, CountsOfAnySplitAreThoseOfTheWhole) {
  expect_counts_of_any_split_are_those_of_the_whole(Accuracy());
  expect_counts_of_any_split_are_those_of_the_whole(TopKAccuracy(3));
  expect_counts_of_any_split_are_those_of_the_whole(ConfusionMatrix(5));
  expect_counts_of_any_split_are_those_of_the_whole(MeanIoU(5));
}

// 8 replicas' states, merged process by process as Replica::sum does, and all at once.
template <class M>
void expect_the_tree_of_any_placement(const M& empty) {
  std::vector<at::Tensor> states;
  const Placement shares = Placement::even(61, 8);
  for (int64_t r = 0; r < 8; ++r) states.push_back(over(shares.block(r), empty).state());
  M all = empty;
  all.merge(gathered(states));
  // Nodes of blocks that are whole subtrees may be merged beforehand: 4 + 2 + 2.
  std::vector<at::Tensor> nodes;
  for (const Interval block : {Interval{0, 4}, Interval{4, 6}, Interval{6, 8}}) {
    M part = empty;
    part.merge(gathered({states.begin() + block.begin, states.begin() + block.end}));
    nodes.push_back(part.state());
  }
  M right = empty, root = empty;
  right.merge(gathered({nodes[1], nodes[2]}));
  root.merge(gathered({nodes[0], right.state()}));
  EXPECT_TRUE(same_bits(all.state(), root.state()));
}

TEST(Metric, MomentsAndMeansFollowTheTreeOverReplicas) {
  expect_the_tree_of_any_placement(Mean());
  expect_the_tree_of_any_placement(FeatureMoments(5));
}

TEST(Metric, EmptyStatesMergeWithoutATrace) {
  const FeatureMoments some = over({0, 30}, FeatureMoments(5));
  const at::Tensor nothing = FeatureMoments(5).state();
  for (const auto& states :
       {std::vector{some.state(), nothing}, {nothing, some.state()}, {nothing, nothing, some.state()}}) {
    FeatureMoments merged(5);
    merged.merge(gathered(states));
    EXPECT_TRUE(same_bits(merged.state(), some.state()));
  }
  FeatureMoments merged(5);
  merged.merge(gathered({nothing, nothing}));
  EXPECT_EQ(merged.count(), 0);
  EXPECT_TRUE(std::isnan(merged.value()));
}

}  // namespace
}  // namespace lockstep::metrics
