// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/metric.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cov.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/numerics/placement.h"
#include "lockstep/numerics/random.h"
#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

at::Tensor random_scores(const std::vector<int64_t>& sizes, uint64_t seed) {
  return normal_(at::empty(sizes, at::kDouble), RandomKey{seed});
}

at::Tensor random_labels(int64_t count, int64_t classes, uint64_t seed) {
  return (uniform_(at::empty({count}, at::kDouble), RandomKey{seed}) * classes).floor().to(at::kLong);
}

at::Tensor gathered(const std::vector<at::Tensor>& states) {
  return at::stack(states);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

TEST(Mean, IsWeightedAndPassesOverWeightZero) {
  Mean mean;
  EXPECT_TRUE(std::isnan(mean.value()));
  mean.add(2, 3);
  mean.add(std::numeric_limits<double>::quiet_NaN(), 0);
  mean.add(10);
  EXPECT_EQ(mean.value(), 4);
  EXPECT_EQ(mean.weight(), 4);
  EXPECT_NE(error_of([&] { mean.add(1, -1); }), "no error");
}

TEST(Accuracy, CountsExamplesWhoseTargetHasTheHighestScore) {
  const at::Tensor scores = at::tensor({1.0, 2.0, 3.0, 5.0, 5.0, 1.0, 0.0, 0.0, 0.0, 9.0, 1.0, 1.0}).view({4, 3});
  Accuracy accuracy;
  accuracy.add(scores, at::tensor({2, 1, 0, -100}, at::kLong));
  EXPECT_EQ(accuracy.right(), 2) << "of equal scores the lowest class wins";
  EXPECT_EQ(accuracy.examples(), 3);
  accuracy.add(at::empty({0, 3}), at::empty({0}, at::kLong));
  EXPECT_DOUBLE_EQ(accuracy.value(), 2.0 / 3);
}

TEST(Accuracy, ANanIsTheLowestScore) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Accuracy accuracy;
  accuracy.add(at::tensor({nan, -1.0, nan, nan}).view({2, 2}), at::tensor({1, 1}, at::kLong));
  EXPECT_EQ(accuracy.right(), 1);
}

TEST(TopK, IsWhetherSortingPutsTheTargetAmongTheFirst) {
  const at::Tensor scores = random_scores({200, 7}, 1), targets = random_labels(200, 7, 2);
  const at::Tensor sorted = scores.argsort(1, /*descending=*/true);
  for (int64_t k = 1; k <= 8; ++k) {
    const int64_t width = std::min<int64_t>(k, 7);
    const auto expected = (sorted.narrow(1, 0, width) == targets.unsqueeze(1)).any(1).sum().item<int64_t>();
    TopK metric(k);
    metric.add(scores.to(at::kFloat), targets);
    EXPECT_EQ(metric.right(), expected) << k;
  }
}

TEST(TopK, TakesOneTargetAPixel) {
  const at::Tensor scores = random_scores({2, 3, 4, 5}, 3);
  const at::Tensor targets = random_labels(40, 3, 4).view({2, 4, 5});
  Accuracy accuracy;
  accuracy.add(scores, targets);
  EXPECT_EQ(accuracy.right(), (scores.argmax(1) == targets).sum().item<int64_t>());
  EXPECT_EQ(accuracy.examples(), 40);
}

TEST(ConfusionMatrix, HasARowForEachTargetAndAColumnForEachPrediction) {
  const at::Tensor guesses = random_labels(300, 4, 5), targets = random_labels(300, 4, 6);
  targets.narrow(0, 0, 20).fill_(255);
  ConfusionMatrix matrix(4, 255);
  matrix.add(guesses, targets);
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t column = 0; column < 4; ++column)
      EXPECT_EQ(matrix.matrix()[row][column].item<int64_t>(),
                ((targets == row) & (guesses == column)).sum().item<int64_t>());
  EXPECT_DOUBLE_EQ(matrix.value(), (targets == guesses).sum().item<double>() / 280);
  ConfusionMatrix of_scores(4, 255);
  of_scores.add(at::one_hot(guesses, 4).to(at::kFloat), targets);
  EXPECT_TRUE(of_scores.matrix().equal(matrix.matrix()));
}

TEST(MeanIoU, IsTheMeanOfIntersectionOverUnionOfTheClassesThatOccur) {
  MeanIoU metric(4, 255);
  metric.add(at::tensor({0, 0, 1, 1, 2, 0}, at::kLong), at::tensor({0, 1, 1, 1, 0, 255}, at::kLong));
  const auto classes = metric.of_classes();
  EXPECT_DOUBLE_EQ(classes[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(classes[1], 2.0 / 3);
  EXPECT_DOUBLE_EQ(classes[2], 0);
  EXPECT_TRUE(std::isnan(classes[3]));
  EXPECT_DOUBLE_EQ(metric.value(), 1.0 / 3);
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
  expect_counts_of_any_split_are_those_of_the_whole(TopK(3));
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

TEST(FeatureMoments, AreMeanAndCovarianceByDefinitionAlsoFarFromZero) {
  const at::Tensor features = random_scores({50, 6}, 9) + 1e6;
  FeatureMoments moments(6);
  for (const Interval rows : {Interval{0, 7}, Interval{7, 7}, Interval{7, 8}, Interval{8, 50}})
    moments.add(features.narrow(0, rows.begin, rows.size()));
  EXPECT_EQ(moments.count(), 50);
  EXPECT_LT((moments.mean() - features.mean(0)).abs().max().item<double>(), 1e-8);
  EXPECT_LT((moments.covariance() - at::cov(features.t())).abs().max().item<double>(), 1e-7);
  EXPECT_NEAR(moments.value(), moments.covariance().trace().item<double>(), 1e-12);
}

TEST(FeatureMoments, HaveTheSameBitsAtEveryCpuLevelAndForAnyNumberOfThreads) {
  const at::Tensor features = random_scores({37, 19}, 10);
  FeatureMoments expected(19);
  {
    const ScopedCpuLevel scoped(CpuLevel::baseline);
    expected.add(features);
  }
  const int threads = at::get_num_threads();
  for (const CpuLevel level : available_cpu_levels())
    for (const int count : {1, 2, 4}) {
      const ScopedCpuLevel scoped(level);
      at::set_num_threads(count);
      FeatureMoments moments(19);
      moments.add(features);
      EXPECT_TRUE(same_bits(moments.state(), expected.state()));
    }
  at::set_num_threads(threads);
}

FeatureMoments moments_of(const at::Tensor& features) {
  FeatureMoments moments(features.size(1));
  moments.add(features);
  return moments;
}

TEST(FrechetDistance, OfDistributionsAlongTheAxesIsItsFormula) {
  const at::Tensor x = random_scores({400, 3}, 11);
  const at::Tensor scale = at::tensor({2.0, 0.5, 3.0}), offset = at::tensor({1.0, -2.0, 0.0});
  // y = x * scale + offset: C2 = S C1 S, and for the first a distribution whose covariance is exactly diagonal.
  const at::Tensor centered = x - x.mean(0);
  const auto [values, vectors] = at::linalg_eigh(at::cov(centered.t()));
  const at::Tensor white = at::matmul(centered, vectors) / values.sqrt();
  const at::Tensor y = white * scale + offset;
  const double expected = (offset * offset).sum().item<double>() + ((scale - 1) * (scale - 1)).sum().item<double>();
  EXPECT_NEAR(frechet_distance(moments_of(white), moments_of(y)), expected, 1e-9);
}

TEST(FrechetDistance, IsSymmetricAndZeroOfOneself) {
  const FeatureMoments a = moments_of(random_scores({60, 8}, 12));
  const FeatureMoments b = moments_of(random_scores({90, 8}, 13) * 2 + 1);
  EXPECT_NEAR(frechet_distance(a, a), 0, 1e-10);
  EXPECT_GT(frechet_distance(a, b), 1);
  EXPECT_NEAR(frechet_distance(a, b), frechet_distance(b, a), 1e-9);
}

TEST(FrechetDistance, OfFewerExamplesThanFeaturesIsFinite) {
  const double distance =
      frechet_distance(moments_of(random_scores({4, 16}, 14)), moments_of(random_scores({5, 16}, 15)));
  EXPECT_TRUE(std::isfinite(distance));
  EXPECT_GT(distance, 0);
}

TEST(FrechetDistance, IsWhatNumpyComputes) {
  if (!std::filesystem::exists(LOCKSTEP_TORCH_PYTHON)) GTEST_SKIP() << "no Python with numpy beside this libtorch";
  const TemporaryFolder folder;
  const at::Tensor a = random_scores({70, 5}, 16),
                   b = at::matmul(random_scores({80, 5}, 17), random_scores({5, 5}, 18));
  for (const auto& [name, tensor] : {std::pair{"a", a}, std::pair{"b", b}}) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
    folder.write(name, {bytes, bytes + tensor.nbytes()});
  }
  // The square root of the product itself, which is not symmetric: its eigenvalues are real all the same.
  const std::string script =
      "import sys, numpy as n; f = lambda p: n.fromfile(sys.argv[1] + p).reshape(-1, 5); a, b = f('/a'), f('/b'); "
      "c, d = n.cov(a.T), n.cov(b.T); m = a.mean(0) - b.mean(0); r = n.sqrt(n.linalg.eigvals(c @ d).real).sum(); "
      "n.array([m @ m + n.trace(c) + n.trace(d) - 2 * r]).tofile(sys.argv[1] + '/out')";
  ASSERT_TRUE(succeeds({LOCKSTEP_TORCH_PYTHON, "-c", script, folder.path().string()}));
  double expected = 0;
  std::ifstream(folder / "out", std::ios::binary).read(reinterpret_cast<char*>(&expected), sizeof expected);
  EXPECT_NEAR(frechet_distance(moments_of(a), moments_of(b)), expected, 1e-9 * expected);
}

}  // namespace
}  // namespace lockstep::data
