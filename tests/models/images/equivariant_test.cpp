// SPDX-License-Identifier: Apache-2.0
// Turning and mirroring what goes in turns and mirrors what comes out, in float64.
#include "lockstep/models/images/equivariant.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "support/gradcheck.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class Equivariance : public testing::TestWithParam<Symmetry> {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    at::set_num_threads(1);  // everything here is small
  }
  static int64_t elements() { return order(GetParam()); }
};

void expect_close(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_TRUE(at::allclose(a, b, 1e-10, 1e-11)) << (a - b).abs().max().item<double>();
}

TEST_P(Equivariance, ElementsMakeAGroupThatMovesImages) {
  const auto image = at::randn({2, 3, 5, 5}, at::kDouble);
  for (int64_t a = 0; a < elements(); ++a) {
    EXPECT_EQ(compose(a, inverse(a)), 0);
    EXPECT_EQ(compose(inverse(a), a), 0);
    for (int64_t b = 0; b < elements(); ++b) {
      EXPECT_LT(compose(a, b), elements());
      EXPECT_TRUE(at::equal(move(move(image, b), a), move(image, compose(a, b)))) << a << " after " << b;
      EXPECT_EQ(at::equal(move(image, a), move(image, b)), a == b);
    }
  }
}

TEST_P(Equivariance, FiltersAreTheLearnedOnesMoved) {
  const int64_t out = 2, in = 3;
  const auto lifting = at::randn({out, in, 5, 5}, at::kDouble);
  const auto lifted = lifting_filters(lifting, GetParam());
  ASSERT_EQ(lifted.sizes(), at::IntArrayRef({elements() * out, in, 5, 5}));
  const auto weight = at::randn({out, in, elements(), 3, 3}, at::kDouble);
  const auto filters = group_filters(weight, GetParam());
  ASSERT_EQ(filters.sizes(), at::IntArrayRef({elements() * out, elements() * in, 3, 3}));
  for (int64_t g = 0; g < elements(); ++g) {
    EXPECT_TRUE(at::equal(lifted.narrow(0, g * out, out), move(lifting, g)));
    for (int64_t h = 0; h < elements(); ++h)
      EXPECT_TRUE(at::equal(filters.narrow(0, g * out, out).narrow(1, h * in, in),
                            move(weight.select(2, compose(inverse(g), h)), g)))
          << "output " << g << ", input " << h;
  }
}

TEST_P(Equivariance, LayersMoveTheirOutputWithTheirInput) {
  LiftingConv2d lifting(GetParam(), 2, 3, 5);
  GroupConv2d group(GetParam(), 3, 4, 3);
  GroupBatchNorm2d norm(GetParam(), 4);
  for (torch::nn::Module* layer : std::initializer_list<torch::nn::Module*>{lifting.get(), group.get(), norm.get()})
    layer->to(at::kDouble);
  const auto images = at::randn({3, 2, 7, 7}, at::kDouble);
  const auto lifted = lifting(images), convolved = group(lifted), normed = norm(convolved);
  for (int64_t g = 0; g < elements(); ++g) {
    SCOPED_TRACE(g);
    expect_close(lifting(move(images, g)), move_features(lifted, GetParam(), g));
    expect_close(group(move_features(lifted, GetParam(), g)), move_features(convolved, GetParam(), g));
    expect_close(norm(move_features(convolved, GetParam(), g)), move_features(normed, GetParam(), g));
    expect_close(group_pool(move_features(normed, GetParam(), g), GetParam()), move(group_pool(normed, GetParam()), g));
  }
}

TEST_P(Equivariance, TheNormIsThatOfEachFeatureOverTheWholeGroup) {
  GroupBatchNorm2d norm(GetParam(), 3);
  torch::nn::BatchNorm1d reference(3);
  norm->to(at::kDouble);
  reference->to(at::kDouble);
  const auto x = at::randn({2, elements() * 3, 4, 4}, at::kDouble);
  const auto rows = x.unflatten(1, {elements(), 3}).permute({0, 1, 3, 4, 2});
  const auto expected = reference(rows.reshape({-1, 3})).reshape(rows.sizes()).permute({0, 1, 4, 2, 3}).flatten(1, 2);
  expect_close(norm(x), expected);
  expect_close(norm->norm->running_mean, reference->running_mean);
  expect_close(norm->norm->running_var, reference->running_var);
  const auto last = norm(x.contiguous(at::MemoryFormat::ChannelsLast));
  expect_close(last, expected);
  EXPECT_TRUE(last.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_P(Equivariance, GradientsOfTheConvolutionsAreThoseOfDifferences) {
  const Symmetry symmetry = GetParam();
  const auto images = at::randn({1, 2, 3, 4}, at::kDouble);
  const auto lifting = at::randn({1, 2, 3, 3}, at::kDouble), group = at::randn({1, 1, elements(), 3, 3}, at::kDouble);
  const auto lift = [=](const std::vector<at::Tensor>& given) { return lifting_filters(given[0], symmetry); };
  const auto expand = [=](const std::vector<at::Tensor>& given) { return group_filters(given[0], symmetry); };
  test::expect_gradients(lift, {lifting});
  test::expect_gradients(expand, {group});
  test::expect_second_gradients(expand, {group});
  test::expect_gradients(
      [=](const std::vector<at::Tensor>& given) {
        const auto lifted = at::conv2d(given[0], lifting_filters(given[1], symmetry), {}, 1, 1);
        return at::conv2d(lifted, group_filters(given[2], symmetry), {}, 1, 1);
      },
      {images, lifting, group});
}

TEST_P(Equivariance, GradientsHaveTheSameBitsEveryTime) {
  const auto weight = at::randn({6, 5, elements(), 3, 3}).requires_grad_();
  const auto direction = at::randn({elements() * 6, elements() * 5, 3, 3});
  const auto gradient = [&] {
    return torch::autograd::grad({group_filters(weight, GetParam())}, {weight}, {direction})[0];
  };
  const auto first = gradient();
  // The copies of a weight, added up one after the other.
  at::Tensor expected = at::zeros_like(weight);
  for (int64_t g = 0; g < elements(); ++g)
    for (int64_t h = 0; h < elements(); ++h)
      expected.select(2, compose(inverse(g), h))
          .add_(move(direction.narrow(0, g * 6, 6).narrow(1, h * 5, 5), inverse(g)));
  EXPECT_TRUE(at::allclose(first, expected, 1e-5, 1e-5));
  for (const int threads : {1, 2, 4}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(gradient(), first)) << threads << " threads";
  }
  at::set_num_threads(1);
}

TEST_P(Equivariance, LogitsAndGradientsStayWhenImagesMove) {
  Equivariant net(EquivariantOptions{.symmetry = GetParam(), .channels = 2, .size = 12, .classes = 5, .features = 2});
  net->to(at::kDouble);
  const auto images = at::randn({3, 2, 12, 12}, at::kDouble);
  for (const bool training : {true, false}) {
    net->train(training);
    const auto expected = net(images), features = net->feature_map(images);
    const auto gradients = torch::autograd::grad({expected.square().sum()}, net->parameters());
    for (int64_t g = 1; g < elements(); ++g) {
      SCOPED_TRACE(g);
      const auto logits = net(move(images, g));
      expect_close(logits, expected);
      expect_close(net->feature_map(move(images, g)), move_features(features, GetParam(), g));
      const auto others = torch::autograd::grad({logits.square().sum()}, net->parameters());
      for (size_t p = 0; p < gradients.size(); ++p)
        EXPECT_TRUE(at::allclose(others[p], gradients[p], 1e-8, 1e-9)) << "parameter " << p;
    }
  }
  // Not because they are all alike: other images give other logits, and c4 tells a mirror image apart.
  EXPECT_FALSE(at::allclose(net(images.flip(0)), net(images), 1e-3, 1e-3));
  EXPECT_EQ(at::allclose(net(move(images, 4)), net(images), 1e-8, 1e-9), GetParam() == Symmetry::d4);
}

INSTANTIATE_TEST_SUITE_P(Of, Equivariance, testing::Values(Symmetry::c4, Symmetry::d4),
                         [](const auto& info) { return info.param == Symmetry::c4 ? "c4" : "d4"; });

TEST(GroupConvolution, SaysWhatItExpected) {
  const auto expect = [](const auto& body, const char* message) {
    EXPECT_THAT(body, ThrowsMessage<Error>(HasSubstr(message)));
  };
  expect([] { LiftingConv2d(Symmetry::c4, 1, 1, 4); }, "LiftingConv2d: the kernel is 4, expected an odd number");
  expect([] { GroupConv2d(Symmetry::c4, 0, 1, 3); }, "GroupConv2d: there are 0 inputs and 1 outputs");
  expect([] { GroupBatchNorm2d(Symmetry::d4, 0); }, "there are 0 features");
  expect([] { lifting_filters(at::zeros({1, 1, 3, 5}), Symmetry::c4); }, "expected [out, in, K, K]");
  expect([] { group_filters(at::zeros({1, 1, 4, 3, 3}), Symmetry::d4); }, "expected [out, in, 8, K, K]");
  expect([] { group_pool(at::zeros({1, 6, 3, 3}), Symmetry::c4); }, "expected [N, 4 * C, H, W]");
  expect([] { move_features(at::zeros({1, 8, 3, 3}), Symmetry::c4, 4); }, "the element is 4, expected 0 to 3");
  expect([] { move(at::zeros({3, 3}), 8); }, "the element is 8, expected 0 to 7");
  expect([] { GroupBatchNorm2d(Symmetry::c4, 2)(at::zeros({1, 9, 3, 3})); }, "expected [N, 4 * 2, H, W]");
  expect([] { Equivariant()(at::zeros({1, 1, 32, 32})); }, "expected [N, 1, 28, 28]");
}

}  // namespace
}  // namespace lockstep::models
