// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/pooled_convolution.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <limits>
#include <vector>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/error.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/dense/detail/image_operations.h"

namespace lockstep::dense {
namespace {

struct Layer {
  int64_t images, channels, height, width, filters, kernel;
  std::array<int64_t, 2> window;
  ConvolutionOptions options;
};

// LeNet's two (9 x 9 points, of which windows cover 8 x 8), padding and strides, a window for all, no image.
constexpr auto layers = std::to_array<Layer>({{3, 1, 28, 28, 20, 3, {2, 2}, {}},
                                              {3, 20, 13, 13, 50, 5, {2, 2}, {}},
                                              {2, 3, 11, 14, 17, 3, {3, 2}, {{2, 1}, {1, 2}}},
                                              {2, 4, 6, 6, 7, 3, {4, 4}, {}},
                                              {0, 2, 8, 8, 5, 3, {2, 2}, {}}});

at::Tensor image(const at::Tensor& x) {
  return x.contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor in_three(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Layer& layer) {
  return at::avg_pool2d(at::relu(at::conv2d(x, weight, bias, layer.options.stride, layer.options.padding)),
                        layer.window);
}

/// The output and the gradients of x, weight and bias.
std::vector<at::Tensor> computed(const Layer& layer, bool in_one_pass) {
  at::manual_seed(11);
  const at::Tensor x = image(at::randn({layer.images, layer.channels, layer.height, layer.width})).requires_grad_();
  const at::Tensor weight =
      image(at::randn({layer.filters, layer.channels, layer.kernel, layer.kernel})).requires_grad_();
  const at::Tensor bias = at::randn({layer.filters}).requires_grad_();
  const at::Tensor y =
      in_one_pass ? convolve_relu_pool(x, weight, bias, layer.window, layer.options) : in_three(x, weight, bias, layer);
  y.backward(at::randn(y.sizes()));
  return {y.detach(), x.grad(), weight.grad(), bias.grad()};
}

TEST(PooledConvolution, HasTheBitsOfTheThreeOperationsOnEveryCpuLevel) {
  for (const CpuLevel level : available_cpu_levels()) {
    const ScopedCpuLevel scoped(level);
    const ContextScope replica({.images = &image_operations()});
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto expected = computed(layers[i], false), got = computed(layers[i], true);
      for (size_t j = 0; j < got.size(); ++j)
        EXPECT_TRUE(at::equal(got[j], expected[j])) << to_string(level) << ", layer " << i << ", tensor " << j;
      EXPECT_TRUE(got[0].is_contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
}

TEST(PooledConvolution, IsTheThreeOperationsWhereTheKernelsAreNotInCharge) {
  const auto expected = computed(layers[1], false), got = computed(layers[1], true);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << "tensor " << i;
}

TEST(PooledConvolution, TakesInfiniteValuesAsTheThreeDo) {
  const ContextScope replica({.images = &image_operations()});
  at::manual_seed(5);
  at::Tensor x = image(at::randn({1, 20, 13, 13}));
  const at::Tensor weight = image(at::randn({50, 20, 5, 5})), bias = at::randn({50});
  x[0][3][2][2] = std::numeric_limits<float>::infinity();
  x[0][4][2][2] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor expected = in_three(x, weight, bias, layers[1]), got = convolve_relu_pool(x, weight, bias);
  EXPECT_TRUE(at::equal(got.isnan(), expected.isnan()));
  EXPECT_TRUE(at::equal(got.nan_to_num(), expected.nan_to_num()));
}

TEST(PooledConvolution, HasGradientsOfGradients) {
  const ContextScope replica({.images = &image_operations()});
  const auto second = [&](bool in_one_pass) {
    at::manual_seed(3);
    const at::Tensor x = image(at::randn({2, 3, 9, 9})).requires_grad_();
    const at::Tensor weight = image(at::randn({6, 3, 3, 3})).requires_grad_(), bias = at::randn({6});
    const Layer& plain = layers[0];
    const at::Tensor y = in_one_pass ? convolve_relu_pool(x, weight, bias) : in_three(x, weight, bias, plain);
    const auto first = torch::autograd::grad({y.square().sum()}, {x, weight}, {}, true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {x, weight});
  };
  const auto expected = second(false), got = second(true);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-4, 1e-4)) << "tensor " << i;
}

TEST(PooledConvolution, TakesNoBias) {
  const ContextScope replica({.images = &image_operations()});
  at::manual_seed(2);
  const at::Tensor x = image(at::randn({2, 3, 9, 9})), weight = image(at::randn({6, 3, 3, 3})).requires_grad_();
  const at::Tensor y = convolve_relu_pool(x, weight, {}), expected = in_three(x, weight, {}, layers[0]);
  EXPECT_TRUE(at::equal(y, expected));
  const auto gradient = torch::autograd::grad({y.square().sum()}, {weight});
  EXPECT_TRUE(at::equal(gradient[0], torch::autograd::grad({expected.square().sum()}, {weight})[0]));
}

TEST(PooledConvolution, SaysWhichWindowItCannotTake) {
  const ContextScope replica({.images = &image_operations()});
  const at::Tensor x = at::randn({1, 1, 5, 5}), weight = at::randn({2, 1, 3, 3});
  try {
    convolve_relu_pool(x, weight, {}, {4, 2});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "dense::convolve_relu_pool: the window is 4 x 2, expected at least 1 x 1 and at most 3 x 3, what the "
                 "convolution gives");
  }
}

}  // namespace
}  // namespace lockstep::dense
