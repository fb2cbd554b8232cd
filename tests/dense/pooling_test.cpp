// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/pooling.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/error.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/dense/detail/image_operations.h"

namespace lockstep::dense {
namespace {

struct Window {
  std::vector<int64_t> sizes;
  PoolingOptions options;
};

// Windows side by side, with gaps, overlapping; channels that fill vectors and don't, and more than a panel of them.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const std::vector<Window> windows = {
    {{2, 20, 9, 8}, {{2, 2}, {2, 2}}}, {{1, 50, 9, 9}, {{2, 2}, {2, 2}}}, {{2, 3, 8, 9}, {{3, 2}, {2, 1}}},
    {{1, 70, 7, 7}, {{2, 3}, {3, 4}}}, {{1, 1, 5, 5}, {{5, 5}, {1, 1}}},  {{0, 4, 4, 4}, {{2, 2}, {2, 2}}},
};

at::Tensor image(at::IntArrayRef sizes, at::ScalarType type) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{7});
  return at::randn(sizes, generator, at::TensorOptions().dtype(type)).contiguous(at::MemoryFormat::ChannelsLast);
}

void expect_pooled(const Window& c, at::ScalarType type, double tolerance) {
  const at::Tensor x = image(c.sizes, type), y = average_pooling(x, c.options);
  const at::Tensor gradient = image(y.sizes(), type), dx = average_pooling_backward(gradient, c.sizes, c.options);
  const auto &kernel = c.options.kernel, &stride = c.options.stride;
  at::Tensor y_sum = at::zeros(y.sizes(), at::kDouble), dx_sum = at::zeros(c.sizes, at::kDouble);
  for (int64_t i = 0; i < y.size(2); ++i)
    for (int64_t j = 0; j < y.size(3); ++j) {
      const auto window = [&](const at::Tensor& t) {
        return t.narrow(2, i * stride[0], kernel[0]).narrow(3, j * stride[1], kernel[1]);
      };
      y_sum.select(2, i).select(2, j).copy_(window(x.to(at::kDouble)).mean(at::IntArrayRef({2, 3})));
      window(dx_sum).add_(gradient.to(at::kDouble).narrow(2, i, 1).narrow(3, j, 1) / (kernel[0] * kernel[1]));
    }
  EXPECT_TRUE(at::allclose(y.to(at::kDouble), y_sum, tolerance, tolerance));
  EXPECT_TRUE(at::allclose(dx.to(at::kDouble), dx_sum, tolerance, tolerance));
  EXPECT_TRUE(dx.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(AveragePooling, IsTheMeanOfEachWindowOnEveryCpuLevel) {
  for (const CpuLevel level : available_cpu_levels()) {
    const ScopedCpuLevel scoped(level);
    for (size_t c = 0; c < windows.size(); ++c) {
      SCOPED_TRACE(testing::Message() << to_string(level) << ", case " << c);
      expect_pooled(windows[c], at::kDouble, 1e-12);
      expect_pooled(windows[c], at::kFloat, 1e-6);
    }
  }
}

TEST(AveragePooling, TakesTheDispatchersPlaceInAScope) {
  const Window& c = windows[1];
  const at::Tensor x = image(c.sizes, at::kFloat).requires_grad_();
  const ContextScope scope({.images = &image_operations()});
  const at::Tensor y = at::avg_pool2d(x, 2, 2);
  y.square().sum().backward();
  EXPECT_TRUE(at::equal(y, average_pooling(x.detach(), c.options)));
  EXPECT_TRUE(at::equal(x.grad(), average_pooling_backward(2 * y.detach(), c.sizes, c.options)));
}

TEST(AveragePooling, LeavesWhatItCannotDoToLibtorchInAScope) {
  const at::Tensor x = image({1, 4, 7, 7}, at::kFloat);
  const auto padded = [&] { return at::avg_pool2d(x, 3, 2, 1, /*ceil_mode=*/true); };
  const at::Tensor outside = padded();
  const ContextScope scope({.images = &image_operations()});
  EXPECT_TRUE(at::equal(padded(), outside));
  EXPECT_EQ(at::avg_pool2d(x.contiguous(), 2).sizes(), at::IntArrayRef({1, 4, 3, 3}));
}

TEST(AveragePooling, RefusesWindowsThatDoNotFit) {
  EXPECT_THROW(average_pooling(at::zeros({1, 1, 2, 2}), {{3, 3}, {1, 1}}), Error);
  EXPECT_THROW(average_pooling(at::zeros({1, 1, 4, 4}), {{2, 2}, {0, 1}}), Error);
  EXPECT_THROW(average_pooling(at::zeros({1, 4, 4})), Error);
  EXPECT_THROW(average_pooling_backward(at::zeros({1, 1, 3, 3}), {1, 1, 4, 4}), Error);
}

}  // namespace
}  // namespace lockstep::dense
