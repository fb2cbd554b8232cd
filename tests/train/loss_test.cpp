// SPDX-License-Identifier: Apache-2.0
#include "train/loss.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "lockstep/data/dataset.h"

namespace lockstep::train {
namespace {

TEST(Loss, OfImagesIsThatOfTheirPixelsAsRows) {
  at::manual_seed(1);
  for (const auto& rest : std::vector<std::vector<int64_t>>{{}, {5}, {4, 3}, {2, 3, 4}})
    for (const double smoothing : {0.0, 0.1}) {
      std::vector<int64_t> sizes{6, 7}, target_sizes{6};
      sizes.insert(sizes.end(), rest.begin(), rest.end());
      target_sizes.insert(target_sizes.end(), rest.begin(), rest.end());
      const at::Tensor logits = at::randn(sizes).requires_grad_();
      const at::Tensor targets = at::randint(7, target_sizes, at::kLong);
      targets[2].fill_(data::kIgnore);
      const at::Tensor got = sum_of_losses(logits, targets, smoothing);
      const at::Tensor expected =
          at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, data::kIgnore, smoothing);
      EXPECT_TRUE(at::allclose(got, expected)) << got << expected;
      EXPECT_TRUE(at::allclose(torch::autograd::grad({got}, {logits})[0],
                               torch::autograd::grad({expected}, {logits})[0], 1e-5, 1e-6));
    }
}

}  // namespace
}  // namespace lockstep::train
