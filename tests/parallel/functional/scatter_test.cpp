// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/scatter.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "support/devices.h"

namespace lockstep::parallel {
namespace {

using test::cpus;

TEST(Scatter, SharesDifferByAtMostOneAndMayBeEmpty) {
  const auto sizes = [](int64_t examples, int replicas) {
    std::vector<int64_t> all;
    for (const at::Tensor& share : scatter(at::arange(examples), cpus(replicas))) all.push_back(share.size(0));
    return all;
  };
  EXPECT_EQ(sizes(10, 3), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(sizes(2, 4), (std::vector<int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(sizes(0, 2), (std::vector<int64_t>{0, 0}));
  const at::Tensor x = at::randn({3, 5});
  EXPECT_TRUE(at::equal(gather(scatter(x, cpus(2), 1), cpus(1)[0], 1), x));
  EXPECT_THROW(scatter(x, {}), Error);
  EXPECT_THROW(scatter(x, cpus(2), 2), Error);
  EXPECT_THROW(split_batch(at::ones(3), at::ones(4), cpus(2)), Error);
}

TEST(Scatter, NestsAndGatherIsItsInverse) {
  using Batch = std::tuple<at::Tensor, std::vector<std::pair<at::Tensor, int>>, std::map<std::string, at::Tensor>,
                           std::optional<at::Tensor>, std::string>;
  const at::Tensor x = at::randn({5, 2}), y = at::arange(5);
  const Batch batch{x, {{y, 7}, {x, 8}}, {{"a", x + 1}, {"b", y + 1}}, std::nullopt, "same"};
  const std::vector<Batch> shares = scatter(batch, cpus(3));
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_TRUE(at::equal(std::get<0>(shares[1]), x.slice(0, 2, 4)));
  EXPECT_EQ(std::get<1>(shares[2])[1].second, 8);
  EXPECT_TRUE(at::equal(std::get<2>(shares[2]).at("b"), y.slice(0, 4, 5) + 1));
  const Batch back = gather(shares, cpus(1)[0]);
  EXPECT_TRUE(at::equal(std::get<0>(back), x));
  EXPECT_TRUE(at::equal(std::get<1>(back)[0].first, y));
  EXPECT_TRUE(at::equal(std::get<2>(back).at("a"), x + 1));
  EXPECT_FALSE(std::get<3>(back).has_value());
  EXPECT_EQ(std::get<4>(back), "same");
  EXPECT_THROW(gather(std::vector<int>{1, 2}, cpus(1)[0]), Error);
}

TEST(Scatter, LossesBecomeAVector) {
  const at::Tensor losses = gather(std::vector<at::Tensor>{at::tensor(1.5), at::tensor(2.5)}, cpus(1)[0]);
  EXPECT_TRUE(at::equal(losses, at::tensor({1.5, 2.5})));
}

TEST(Scatter, IsDifferentiable) {
  const at::Tensor x = at::randn({5, 2}, at::kDouble).requires_grad_();
  const auto shares = scatter(x, cpus(2));
  gather(std::vector<at::Tensor>{shares[0] * 2, shares[1] * 3}, cpus(1)[0]).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::cat({at::full({3, 2}, 2., at::kDouble), at::full({2, 2}, 3., at::kDouble)})));
}

}  // namespace
}  // namespace lockstep::parallel

namespace elsewhere {

/// A type with the two functions: rows of lists, as a sparse batch is.
struct Lists {
  std::vector<std::vector<int>> rows;
};
std::vector<Lists> lockstep_scatter(const Lists& batch, const std::vector<lockstep::Device>& devices, int64_t) {
  std::vector<Lists> shares(devices.size());
  for (size_t i = 0; i < batch.rows.size(); ++i) shares[i % devices.size()].rows.push_back(batch.rows[i]);
  return shares;
}
Lists lockstep_gather(const std::vector<Lists>& parts, const lockstep::Device&, int64_t) {
  Lists whole;
  for (const Lists& part : parts) whole.rows.insert(whole.rows.end(), part.rows.begin(), part.rows.end());
  return whole;
}

}  // namespace elsewhere

namespace lockstep::parallel {
namespace {

TEST(Scatter, TakesTypesOfOthers) {
  const std::pair<elsewhere::Lists, at::Tensor> batch{{{{1}, {2, 2}, {3}}}, at::arange(3)};
  const auto shares = scatter(batch, cpus(2));
  EXPECT_EQ(shares[0].first.rows, (std::vector<std::vector<int>>{{1}, {3}}));
  EXPECT_EQ(gather(shares, cpus(1)[0]).first.rows.size(), 3u);
}

}  // namespace
}  // namespace lockstep::parallel
