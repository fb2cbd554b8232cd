// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/convolution.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/error.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/dense/detail/image_operations.h"

namespace lockstep::dense {
namespace {

struct Case {
  int64_t images, channels, height, width, filters, kernel_height, kernel_width;
  ConvolutionOptions options;
};

// Lines long and short, filters that fill vectors and don't, more points than a tile, steps, paddings, single points.
constexpr auto cases = std::to_array<Case>({
    {2, 1, 12, 11, 20, 3, 3, {}},
    {3, 20, 13, 13, 50, 5, 5, {}},
    {2, 3, 17, 9, 16, 3, 5, {{2, 1}, {1, 2}}},
    {1, 8, 6, 6, 33, 3, 3, {{1, 1}, {1, 1}}},
    {2, 16, 9, 8, 7, 2, 3, {{3, 2}, {0, 1}}},
    {2, 5, 4, 4, 3, 4, 4, {}},
    {1, 40, 3, 3, 17, 1, 1, {{2, 2}, {0, 0}}},
    {1, 2, 2, 2, 1, 3, 3, {{1, 1}, {2, 2}}},
    {0, 4, 5, 5, 6, 3, 3, {}},
});

at::Tensor with_channels_last(const at::Tensor& x) {
  return x.contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor random(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kDouble) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions().dtype(type));
}

struct Problem {
  at::Tensor x, weight, bias;
};

Problem problem(const Case& c, at::ScalarType type) {
  return {with_channels_last(random({c.images, c.channels, c.height, c.width}, 1, type)),
          with_channels_last(random({c.filters, c.channels, c.kernel_height, c.kernel_width}, 2, type)),
          random({c.filters}, 3, type)};
}

/// Calls work(n, k, c, y, x, i, j, row, column) for each product in the sum that a convolution is: output (n, k, y, x)
/// takes weight (k, c, i, j) times image (n, c, row, column).
template <class Work>
void for_each_product(const Case& s, int64_t out_height, int64_t out_width, const Work& work) {
  const auto [stride, padding] = s.options;
  for (int64_t n = 0; n < s.images; ++n)
    for (int64_t k = 0; k < s.filters; ++k)
      for (int64_t y = 0; y < out_height; ++y)
        for (int64_t x = 0; x < out_width; ++x)
          for (int64_t c = 0; c < s.channels; ++c)
            for (int64_t i = 0; i < s.kernel_height; ++i)
              for (int64_t j = 0; j < s.kernel_width; ++j) {
                const int64_t row = y * stride[0] + i - padding[0], column = x * stride[1] + j - padding[1];
                if (row >= 0 && row < s.height && column >= 0 && column < s.width)
                  work(n, k, c, y, x, i, j, row, column);
              }
}

void expect_near(const at::Tensor& got, const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(got.sizes(), expected.sizes());
  if (got.numel() == 0) return;
  const double scale = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LT((got.to(at::kDouble) - expected).abs().max().item<double>(), tolerance * scale);
}

void expect_definition(const Case& s, at::ScalarType type, double tolerance) {
  const Problem p = problem(s, type);
  const at::Tensor y = convolution(p.x, p.weight, p.bias, s.options);
  const at::Tensor gradient = with_channels_last(random(y.sizes(), 4, type));
  const auto [dx, dw, db] = convolution_backward(gradient, p.x, p.weight, s.options, {true, true, true});

  const at::Tensor x64 = p.x.to(at::kDouble).contiguous(), w64 = p.weight.to(at::kDouble).contiguous();
  const at::Tensor g64 = gradient.to(at::kDouble).contiguous();
  at::Tensor y_sum = p.bias.to(at::kDouble).view({1, -1, 1, 1}).expand(y.sizes()).contiguous();
  at::Tensor dx_sum = at::zeros_like(x64), dw_sum = at::zeros_like(w64);
  auto x = x64.accessor<double, 4>(), w = w64.accessor<double, 4>(), g = g64.accessor<double, 4>();
  auto y_at = y_sum.accessor<double, 4>(), dx_at = dx_sum.accessor<double, 4>(), dw_at = dw_sum.accessor<double, 4>();
  for_each_product(s, y.size(2), y.size(3),
                   [&](auto n, auto k, auto c, auto i, auto j, auto u, auto v, auto a, auto b) {
                     y_at[n][k][i][j] += w[k][c][u][v] * x[n][c][a][b];
                     dx_at[n][c][a][b] += w[k][c][u][v] * g[n][k][i][j];
                     dw_at[k][c][u][v] += x[n][c][a][b] * g[n][k][i][j];
                   });
  expect_near(y, y_sum, tolerance);
  expect_near(dx, dx_sum, tolerance);
  expect_near(dw, dw_sum, tolerance);
  expect_near(db, g64.sum({0, 2, 3}), tolerance);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(dx.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(dw.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(DenseConvolution, IsTheSumThatDefinesItOnEveryCpuLevel) {
  for (const CpuLevel level : available_cpu_levels()) {
    const ScopedCpuLevel scoped(level);
    for (size_t c = 0; c < cases.size(); ++c) {
      SCOPED_TRACE(testing::Message() << to_string(level) << ", case " << c);
      expect_definition(cases[c], at::kDouble, 1e-12);
      expect_definition(cases[c], at::kFloat, 1e-5);
    }
  }
}

TEST(DenseConvolution, TakesContiguousImagesAndNoBias) {
  const Case& c = cases[1];
  const Problem p = problem(c, at::kDouble);
  const at::Tensor y = convolution(p.x, p.weight, {}, c.options);
  EXPECT_TRUE(at::equal(convolution(p.x.contiguous(), p.weight.contiguous(), {}, c.options), y));
  expect_near(convolution(p.x, p.weight, p.bias, c.options), y + p.bias.view({1, -1, 1, 1}), 1e-12);
}

TEST(DenseConvolution, ComputesOnlyTheGradientsAskedFor) {
  const Case& c = cases[1];
  const Problem p = problem(c, at::kFloat);
  const at::Tensor gradient = random({c.images, c.filters, 9, 9}, 4, at::kFloat);
  const auto all = convolution_backward(gradient, p.x, p.weight, c.options, {true, true, true});
  const auto [dx, no_weight, no_bias] = convolution_backward(gradient, p.x, p.weight, c.options, {true, false, false});
  EXPECT_TRUE(at::equal(dx, std::get<0>(all)));
  EXPECT_FALSE(no_weight.defined() || no_bias.defined());
  const auto [no_input, dw, none] = convolution_backward(gradient, p.x, p.weight, c.options, {false, true, false});
  EXPECT_TRUE(at::equal(dw, std::get<1>(all)));
  EXPECT_FALSE(no_input.defined() || none.defined());
  EXPECT_TRUE(at::equal(std::get<2>(convolution_backward(gradient, p.x, p.weight, c.options, {false, false, true})),
                        std::get<2>(all)));
}

TEST(DenseConvolution, HasTheSameBitsAtEveryAlignment) {
  const Case& c = cases[1];
  const Problem p = problem(c, at::kFloat);
  const at::Tensor y = convolution(p.x, p.weight, p.bias, c.options);
  for (const int64_t shift : {1, 3}) {
    const at::Tensor moved = at::empty({p.x.numel() + shift}).slice(0, shift).as_strided(p.x.sizes(), p.x.strides());
    moved.copy_(p.x);
    EXPECT_TRUE(at::equal(convolution(moved, p.weight, p.bias, c.options), y)) << shift;
  }
}

// An image's output is its own affair, so a batch is its parts side by side.
TEST(DenseConvolution, OfABatchIsThatOfItsPartsBitForBit) {
  const Case& c = cases[1];
  const Problem p = problem(c, at::kFloat);
  const at::Tensor y = convolution(p.x, p.weight, p.bias, c.options);
  for (int64_t i = 0; i < c.images; ++i)
    EXPECT_TRUE(at::equal(convolution(p.x.narrow(0, i, 1), p.weight, p.bias, c.options), y.narrow(0, i, 1)));
}

TEST(DenseConvolution, RefusesWhatIsNoConvolution) {
  const at::Tensor x = at::zeros({1, 3, 8, 8});
  const auto message = [&](const at::Tensor& image, const at::Tensor& weight, const at::Tensor& bias,
                           const ConvolutionOptions& options) -> std::string {
    try {
      convolution(image, weight, bias, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(message(x, at::zeros({4, 2, 3, 3}), {}, {}), testing::HasSubstr("[4, 2, 3, 3]"));
  EXPECT_THAT(message(x, at::zeros({4, 3, 9, 3}), {}, {}), testing::HasSubstr("9 x 3"));
  EXPECT_THAT(message(x, at::zeros({4, 3, 3, 3}, at::kDouble), {}, {}), testing::HasSubstr("Double"));
  EXPECT_THAT(message(x, at::zeros({4, 3, 3, 3}), at::zeros({3}), {}), testing::HasSubstr("expected [4]"));
  EXPECT_THAT(message(x, at::zeros({4, 3, 3, 3}), {}, {{0, 1}, {0, 0}}), testing::HasSubstr("stride is 0 x 1"));
  EXPECT_THROW(convolution_backward(at::zeros({1, 4, 5, 5}), x, at::zeros({4, 3, 3, 3}), {}, {true, true, true}),
               Error);
}

// The default is `automatic`, which this shape gains by.
TEST(DenseConvolution, TakesTheDispatchersPlaceInAScopeAndOnItsThreadAlone) {
  const Case& c = cases[1];
  const Problem p = problem(c, at::kFloat);
  const auto step = [&] {
    const at::Tensor x = p.x.detach().clone().requires_grad_(), w = p.weight.detach().clone().requires_grad_();
    const at::Tensor y = at::conv2d(x, w, p.bias);
    y.square().sum().backward();
    return std::vector<at::Tensor>{y.detach(), x.grad(), w.grad()};
  };
  const at::Tensor y = convolution(p.x, p.weight, p.bias, c.options);
  const auto [dx, dw, db] = convolution_backward(2 * y, p.x, p.weight, c.options, {true, true, true});
  const std::vector<at::Tensor> before = step();
  std::vector<at::Tensor> inside, elsewhere;
  {
    const ContextScope scope({.images = &image_operations()});
    inside = step();
    std::thread([&] { elsewhere = step(); }).join();
  }
  const std::vector<at::Tensor> after = step(), own = {y, dx, dw};
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(at::equal(inside[i], own[i])) << i;
    EXPECT_TRUE(at::allclose(before[i], own[i], 1e-3, 1e-3)) << i;
    EXPECT_TRUE(at::equal(after[i], before[i])) << i;
    EXPECT_TRUE(at::allclose(elsewhere[i], own[i], 1e-3, 1e-3)) << i;
  }
  EXPECT_FALSE(at::equal(before[1], own[1])) << "both ways have the same bits: this test can't tell them apart";
}

TEST(DenseConvolution, LeavesOtherConvolutionsToLibtorchInAScope) {
  const ContextScope scope({.images = &image_operations()});
  const std::vector<int64_t> zero = {0, 0}, one = {1, 1}, two = {2, 2};
  const at::Tensor none;
  const at::Tensor x = with_channels_last(random({2, 4, 7, 7}, 1)), w = with_channels_last(random({6, 2, 3, 3}, 2));
  EXPECT_EQ(at::conv2d(x, w, none, one, zero, one, 2).sizes(), at::IntArrayRef({2, 6, 5, 5}));
  EXPECT_EQ(at::conv2d(x, with_channels_last(random({6, 4, 3, 3}, 2)), none, one, zero, two).sizes(),
            at::IntArrayRef({2, 6, 3, 3}));
  EXPECT_EQ(at::conv_transpose2d(x, with_channels_last(random({4, 6, 3, 3}, 2))).sizes(),
            at::IntArrayRef({2, 6, 9, 9}));
  EXPECT_EQ(at::conv1d(x.select(3, 0), w.select(3, 0).repeat({1, 2, 1})).sizes(), at::IntArrayRef({2, 6, 5}));
}

}  // namespace
}  // namespace lockstep::dense
