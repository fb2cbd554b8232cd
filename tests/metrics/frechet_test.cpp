// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/frechet.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cov.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/numerics/tree.h"
#include "random_scores.h"
#include "support/files.h"

namespace lockstep::metrics {
namespace {

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
  const test::TemporaryFolder folder;
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
  ASSERT_TRUE(data::succeeds({LOCKSTEP_TORCH_PYTHON, "-c", script, folder.path().string()}));
  double expected = 0;
  std::ifstream(folder / "out", std::ios::binary).read(reinterpret_cast<char*>(&expected), sizeof expected);
  EXPECT_NEAR(frechet_distance(moments_of(a), moments_of(b)), expected, 1e-9 * expected);
}

}  // namespace
}  // namespace lockstep::metrics
