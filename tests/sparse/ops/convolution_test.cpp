// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/convolution.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/error.h"
#include "lockstep/sparse/kernel_region.h"
#include "support/clouds.h"
#include "support/gradcheck.h"

namespace lockstep::sparse {
namespace {

using test::random_cloud;

struct Case {
  CoordinateMapPtr in, out;
  KernelMapPtr map;
  std::vector<int64_t> offsets;
};

Case make_case(int64_t points, int64_t axes, int64_t size, int64_t stride, uint32_t seed) {
  Case made;
  const int64_t high = axes == 1 ? 60 : axes == 2 ? 9 : 3;
  made.in = CoordinateMap::insert(random_cloud(points, axes, -high, high, 2, seed)).map;
  made.out = stride == 1 ? made.in : made.in->strided(AxisValues(axes, stride));
  made.offsets = KernelRegion::hypercube(AxisValues(axes, size), AxisValues(axes, 1)).offsets(AxisValues(axes, 1));
  made.map = KernelMap::build(made.in, made.out, made.offsets);
  return made;
}

/// The definition, one output, one offset, one group at a time, in float64.
at::Tensor reference(const Case& c, const at::Tensor& x, const at::Tensor& weight, int64_t groups = 1) {
  const auto rows = test::rows_of(c.in->coordinates());
  const auto outputs = test::to_points(c.out->coordinates());
  const int64_t axes = c.in->dimension(), in = weight.size(1), out = weight.size(2) / groups;
  const at::Tensor wide = x.to(at::kDouble), w = weight.to(at::kDouble);
  at::Tensor y = at::zeros({c.out->size(), weight.size(2)}, at::kDouble);
  for (size_t row = 0; row < outputs.size(); ++row)
    for (int64_t k = 0; k < weight.size(0); ++k) {
      test::Point point = outputs[row];
      for (int64_t axis = 0; axis < axes; ++axis) point[axis + 1] += c.offsets[k * axes + axis];
      const auto found = rows.find(point);
      if (found == rows.end()) continue;
      for (int64_t g = 0; g < groups; ++g)
        y[row].narrow(0, g * out, out) +=
            wide[found->second].narrow(0, g * in, in).matmul(w[k].narrow(1, g * out, out));
    }
  return y;
}

void expect_close(const at::Tensor& got, const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(got.sizes(), expected.sizes());
  if (got.numel() == 0) return;
  const double scale = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LE((got.to(at::kDouble) - expected).abs().max().item<double>(), tolerance * scale);
}

TEST(Convolution, EqualsItsDefinitionAtEveryCpuLevel) {
  for (const CpuLevel level : available_cpu_levels()) {
    const ScopedCpuLevel scoped(level);
    for (const int64_t axes : {1, 2, 3, 4, 5}) {
      at::manual_seed(3);
      for (const int64_t size : {1, 2, 3}) {
        if (axes > 3 && size > 2) continue;
        for (const int64_t stride : {1, 2}) {
          const Case c = make_case(90, axes, size, stride, 5);
          for (const auto& [in, out] : {std::pair<int64_t, int64_t>{3, 20}, {1, 1}, {7, 33}}) {
            const at::Tensor x = at::randn({c.in->size(), in}, at::kDouble);
            const at::Tensor w = at::randn({c.map->volume(), in, out}, at::kDouble);
            const at::Tensor expected = reference(c, x, w);
            expect_close(convolve(x, w, c.map), expected, 1e-13);
            expect_close(convolve(x.to(at::kFloat), w.to(at::kFloat), c.map), expected, 1e-5);
          }
        }
      }
    }
  }
}

TEST(Convolution, EqualsTheDenseOneOnTheDensifiedTensor) {
  for (const int64_t axes : {1, 2, 3}) {
    const Case c = make_case(80, axes, 3, 1, 9);
    at::manual_seed(4);
    const at::Tensor x = at::randn({c.in->size(), 4}, at::kDouble), w = at::randn({c.map->volume(), 4, 5}, at::kDouble);
    std::vector<int64_t> shape = {2, 4};
    shape.resize(2 + axes, 141);
    for (int64_t axis = 0; axis < axes && axes > 1; ++axis) shape[2 + axis] = 23;
    at::Tensor dense = at::zeros(shape, at::kDouble);
    const auto index = [&](const test::Point& point) {
      std::vector<at::indexing::TensorIndex> at{point[0], at::indexing::Slice()};
      for (int64_t axis = 0; axis < axes; ++axis) at.push_back(point[axis + 1] + (axes > 1 ? 11 : 70));
      return at;
    };
    const auto points = test::to_points(c.in->coordinates());
    for (size_t i = 0; i < points.size(); ++i) dense.index_put_(index(points[i]), x[i]);
    // The first axis of a kernel runs fastest, so the dense kernel's axes are those of the reshaped one, reversed.
    std::vector<int64_t> kernel_shape(axes, 3), order = {axes + 1, axes};
    kernel_shape.insert(kernel_shape.end(), {4, 5});
    for (int64_t axis = axes; axis-- > 0;) order.push_back(axis);
    const at::Tensor kernel = w.reshape(kernel_shape).permute(order).contiguous();
    const std::vector<int64_t> ones(axes, 1), zeros(axes, 0);
    const at::Tensor y = at::convolution(dense, kernel, {}, ones, ones, ones, false, zeros, 1);
    const at::Tensor got = convolve(x, w, c.map);
    for (size_t i = 0; i < points.size(); ++i) expect_close(got[i], y.index(index(points[i])), 1e-12);
  }
}

TEST(Convolution, TransposedIsTheAdjoint) {
  const Case c = make_case(120, 3, 3, 2, 6);
  at::manual_seed(5);
  const at::Tensor x = at::randn({c.in->size(), 6}, at::kDouble), w = at::randn({27, 6, 9}, at::kDouble);
  const at::Tensor y = at::randn({c.out->size(), 9}, at::kDouble);
  const at::Tensor back = convolve(y, w.transpose(1, 2).contiguous(), c.map->transposed());
  ASSERT_EQ(back.sizes(), x.sizes());
  EXPECT_NEAR((convolve(x, w, c.map) * y).sum().item<double>(), (x * back).sum().item<double>(), 1e-9);
}

TEST(Convolution, ItsInputGradientIsTheTransposedOneToTheBitAtEveryCpuLevel) {
  const Case c = make_case(120, 3, 3, 2, 6);
  for (const CpuLevel level : available_cpu_levels()) {
    const ScopedCpuLevel scoped(level);
    at::manual_seed(5);
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{20, 33}, {70, 18}, {5, 7}, {32, 64}, {1, 9}, {9, 1}})
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        const at::Tensor x = at::randn({c.in->size(), in}, dtype).requires_grad_();
        const at::Tensor w = at::randn({27, in, out}, dtype), g = at::randn({c.out->size(), out}, dtype);
        convolve(x, w, c.map).backward(g);
        EXPECT_TRUE(at::equal(x.grad(), convolve(g, w.transpose(1, 2).contiguous(), c.map->transposed())))
            << in << " to " << out << " channels, " << dtype;
      }
  }
}

TEST(Convolution, HasFirstAndSecondGradients) {
  at::manual_seed(6);
  for (const int64_t axes : {1, 2, 3, 4})
    for (const int64_t stride : {1, 2}) {
      const Case c = make_case(9, axes, 2, stride, 7);
      for (const int64_t groups : {1, 2}) {
        const lockstep::test::Differentiable f = [&](const std::vector<at::Tensor>& in) {
          return convolve(in[0], in[1], c.map, groups);
        };
        const std::vector<at::Tensor> inputs = {at::randn({c.in->size(), 4}, at::kDouble),
                                                at::randn({c.map->volume(), 4 / groups, 2}, at::kDouble)};
        lockstep::test::expect_gradients(f, inputs);
        if (axes == 2) lockstep::test::expect_second_gradients(f, inputs);
      }
    }
}

TEST(Convolution, HasChannelwiseGradients) {
  at::manual_seed(6);
  const Case c = make_case(20, 2, 3, 2, 7);
  const lockstep::test::Differentiable f = [&](const std::vector<at::Tensor>& in) {
    return convolve_channelwise(in[0], in[1], c.map);
  };
  const std::vector<at::Tensor> inputs = {at::randn({c.in->size(), 3}, at::kDouble), at::randn({9, 3}, at::kDouble)};
  lockstep::test::expect_gradients(f, inputs);
  lockstep::test::expect_second_gradients(f, inputs);
  // Channel by channel it is a convolution with diagonal weights, and one with as many groups as channels.
  EXPECT_TRUE(at::allclose(f(inputs), reference(c, inputs[0], at::diag_embed(inputs[1]))));
  EXPECT_TRUE(at::allclose(f(inputs), convolve(inputs[0], inputs[1].unsqueeze(1).contiguous(), c.map, 3)));
}

TEST(Convolution, TakesGroups) {
  const Case c = make_case(100, 3, 3, 1, 8);
  at::manual_seed(7);
  const at::Tensor x = at::randn({c.in->size(), 12}, at::kDouble), w = at::randn({27, 3, 8}, at::kDouble);
  expect_close(convolve(x, w, c.map, 4), reference(c, x, w, 4), 1e-13);
}

TEST(Convolution, SumsHalfPrecisionInFloat32) {
  const Case c = make_case(120, 3, 3, 1, 10);
  at::manual_seed(8);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    at::Tensor x = at::randn({c.in->size(), 16}).to(type), w = at::randn({27, 16, 24}).to(type);
    const at::Tensor exact = convolve(x.to(at::kFloat), w.to(at::kFloat), c.map);
    EXPECT_TRUE(at::equal(convolve(x, w, c.map), exact.to(type)));
    x.requires_grad_(true), w.requires_grad_(true);
    const at::Tensor g = at::randn_like(exact).to(type);
    convolve(x, w, c.map).backward(g);
    const at::Tensor x32 = x.detach().to(at::kFloat).requires_grad_(true);
    const at::Tensor w32 = w.detach().to(at::kFloat).requires_grad_(true);
    convolve(x32, w32, c.map).backward(g.to(at::kFloat));
    EXPECT_TRUE(at::equal(x.grad(), x32.grad().to(type)));
    EXPECT_TRUE(at::equal(w.grad(), w32.grad().to(type)));
  }
}

TEST(Convolution, FollowsAutocast) {
  const Case c = make_case(60, 2, 3, 1, 10);
  const at::Tensor x = at::randn({c.in->size(), 8}), w = at::randn({9, 8, 8}).requires_grad_(true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor y = convolve(x, w, c.map);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(y, convolve(x.to(at::kBFloat16), w.to(at::kBFloat16), c.map)));
  y.backward(at::ones_like(y));
  EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
}

/// Of a small map, which one thread goes through by offsets, and of a large one.
class AnyNumberOfThreads : public ::testing::TestWithParam<int64_t> {};

TEST_P(AnyNumberOfThreads, GivesTheSameBits) {
  at::manual_seed(9);
  const int64_t points = GetParam(), side = points < 1000 ? 9 : 30;
  const auto in = CoordinateMap::insert(random_cloud(points, 3, 0, side, 2, 8)).map;
  const std::vector<int64_t> ones = {1, 1, 1};
  const auto map = KernelMap::build(in, in, KernelRegion::hypercube({3, 3, 3}, ones).offsets(ones));
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({in->size(), 19}, type), w = at::randn({27, 19, 21}, type),
                     v = at::randn({27, 19}, type);
    std::vector<at::Tensor> first;
    for (const int threads : {1, 2, 4}) {
      at::set_num_threads(threads);
      std::vector<at::Tensor> leaves = {x.clone(), w.clone(), v.clone()};
      for (at::Tensor& leaf : leaves) leaf.requires_grad_(true);
      const at::Tensor y = convolve(leaves[0], leaves[1], map), z = convolve_channelwise(leaves[0], leaves[2], map);
      torch::autograd::backward({y, z}, {at::full_like(y, 0.3), at::full_like(z, 0.7)});
      const std::vector<at::Tensor> all = {y.detach(), z.detach(), leaves[0].grad(), leaves[1].grad(),
                                           leaves[2].grad()};
      if (first.empty()) first = all;
      for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(at::equal(all[i], first[i])) << i << " with " << threads;
    }
    at::set_num_threads(1);
  }
}
INSTANTIATE_TEST_SUITE_P(Points, AnyNumberOfThreads, ::testing::Values(600, 20000));

TEST(Convolution, TakesWhatLiesApartAndWhatIsEmpty) {
  const Case c = make_case(50, 2, 3, 1, 11);
  at::manual_seed(10);
  const at::Tensor x = at::randn({5, c.in->size()}, at::kDouble).t(),
                   w = at::randn({6, 5, 9}, at::kDouble).permute({2, 1, 0});
  expect_close(convolve(x, w, c.map), reference(c, x, w), 1e-13);
  EXPECT_EQ(convolve(at::zeros({c.in->size(), 0}), at::zeros({9, 0, 3}), c.map).abs().sum().item<float>(), 0);
  EXPECT_EQ(convolve(at::zeros({c.in->size(), 3}), at::zeros({9, 3, 0}), c.map).numel(), 0);
  const auto nothing = CoordinateMap::insert(at::empty({0, 3}, at::kInt)).map;
  const auto empty = KernelMap::build(nothing, nothing, c.offsets);
  at::Tensor weight = at::randn({9, 4, 4}).requires_grad_(true);
  convolve(at::zeros({0, 4}), weight, empty).sum().backward();
  EXPECT_EQ(weight.grad().abs().sum().item<float>(), 0);
  const auto into = KernelMap::build(nothing, c.in, c.offsets);
  EXPECT_EQ(convolve(at::zeros({0, 4}), weight.detach(), into).abs().sum().item<float>(), 0);
}

TEST(Convolution, AddsABiasAndActsAsALinearLayer) {
  at::manual_seed(11);
  const std::vector<at::Tensor> inputs = {at::randn({30, 4}, at::kDouble), at::randn({4, 3}, at::kDouble),
                                          at::randn({1, 3}, at::kDouble)};
  const lockstep::test::Differentiable f = [](const std::vector<at::Tensor>& in) {
    return sparse::linear(in[0], in[1], in[2]);
  };
  EXPECT_TRUE(at::allclose(f(inputs), inputs[0].matmul(inputs[1]) + inputs[2]));
  lockstep::test::expect_gradients(f, inputs);
  lockstep::test::expect_second_gradients(f, inputs);
}

TEST(Convolution, SaysWhatDoesNotFit) {
  const Case c = make_case(20, 2, 3, 1, 12);
  const int64_t n = c.in->size();
  EXPECT_THROW(convolve(at::zeros({n + 1, 4}), at::zeros({9, 4, 4}), c.map), Error);
  EXPECT_THROW(convolve(at::zeros({n, 4}), at::zeros({8, 4, 4}), c.map), Error);
  EXPECT_THROW(convolve(at::zeros({n, 4}), at::zeros({9, 5, 4}), c.map), Error);
  EXPECT_THROW(convolve(at::zeros({n, 4}), at::zeros({9, 4, 4}, at::kDouble), c.map), Error);
  EXPECT_THROW(convolve(at::zeros({n, 4}, at::kLong), at::zeros({9, 4, 4}, at::kLong), c.map), Error);
  EXPECT_THROW(convolve(at::zeros({n, 4}), at::zeros({9, 2, 3}), c.map, 2), Error);
  EXPECT_THROW(convolve(at::zeros({n, 4}), at::zeros({9, 4}), c.map), Error);
  EXPECT_THROW(convolve_channelwise(at::zeros({n, 4}), at::zeros({9, 5}), c.map), Error);
  EXPECT_THROW(sparse::linear(at::zeros({3, 4}), at::zeros({5, 4})), Error);
}

}  // namespace
}  // namespace lockstep::sparse
