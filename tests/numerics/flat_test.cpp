// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/detail/flat.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

uintptr_t address(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data_ptr());
}

// Shapes that a layout may meet: matrices, a scalar, an empty tensor, a vector, a 4-d weight.
std::vector<at::Tensor> various(at::ScalarType dtype = at::kFloat) {
  const auto options = at::TensorOptions().dtype(dtype);
  return {at::randn({3, 5}, options), at::randn({}, options), at::randn({0, 4}, options), at::randn({17}, options),
          at::randn({2, 3, 4, 5}, options)};
}

TEST(FlatBuffer, HoldsEveryTensorAtAnAlignedPlaceWithItsShapeAndValues) {
  const auto tensors = various();
  const auto buffer = FlatBuffer::flatten(tensors);
  ASSERT_EQ(buffer.layout().size(), 5);
  ASSERT_EQ(buffer.layout().rows().size(), 1u);
  for (int64_t i = 0; i < 5; ++i) {
    const at::Tensor& view = buffer.view(i);
    EXPECT_TRUE(view.equal(tensors[static_cast<size_t>(i)])) << i;
    EXPECT_TRUE(view.is_contiguous()) << i;
    if (view.numel() == 0) continue;
    EXPECT_EQ(address(view) % 64, 0u) << i;
    EXPECT_EQ(address(view), address(buffer.row()) + 4 * static_cast<uintptr_t>(buffer.layout().slot(i).offset)) << i;
  }
  // 15, 1, 0, 17 and 120 floats, each padded to a multiple of 16.
  EXPECT_EQ(buffer.row().numel(), 16 + 16 + 0 + 32 + 128);
}

TEST(FlatBuffer, PaddingIsZeroAndWritingToAViewWritesToTheRow) {
  const auto tensors = various();
  const auto buffer = FlatBuffer::flatten(tensors);
  double in_tensors = 0;
  for (const at::Tensor& tensor : tensors) in_tensors += tensor.abs().sum(at::kDouble).item<double>();
  EXPECT_NEAR(buffer.row().abs().sum(at::kDouble).item<double>(), in_tensors, 1e-9);
  buffer.view(3).fill_(7);
  EXPECT_EQ((buffer.row() == 7).sum().item<int64_t>(), 17);
}

TEST(FlatBuffer, ALongRowStartsAtAPage) {
  for (int i = 0; i < 8; ++i) {
    const auto buffer = FlatBuffer::flatten(std::vector{at::randn({100'000 + i})});
    EXPECT_EQ(address(buffer.row()) % 4096, 0u);
    EXPECT_EQ(address(FlatBuffer::flatten(std::vector{at::randn({3})}).row()) % 64, 0u);
  }
}

TEST(FlatBuffer, EveryDtypeHasARowOfItsOwnInTheGivenOrder) {
  std::vector<at::Tensor> tensors{at::randn({5}), at::randn({3}, at::kDouble), at::randn({4}).to(at::kBFloat16),
                                  at::randn({6}), at::arange(40)};
  const auto buffer = FlatBuffer::flatten(tensors);
  ASSERT_EQ(buffer.layout().rows().size(), 4u);
  EXPECT_EQ(buffer.row(0).numel(), 32);
  EXPECT_EQ(buffer.row(1).numel(), 8);
  EXPECT_EQ(buffer.row(2).numel(), 32);
  EXPECT_EQ(buffer.row(3).numel(), 40);
  EXPECT_EQ(buffer.layout().slot(3).row, 0);
  EXPECT_EQ(buffer.layout().slot(3).offset, 16);
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(buffer.view(static_cast<int64_t>(i)).equal(tensors[i])) << i;
}

TEST(FlatBuffer, NonContiguousSourcesKeepTheirValues) {
  const at::Tensor source = at::randn({6, 8, 4});
  const std::vector<at::Tensor> tensors{source.transpose(0, 1), source.slice(1, 0, 8, 3), source.select(2, 1),
                                        at::randn({1}).expand({5})};
  const auto buffer = FlatBuffer::flatten(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(buffer.view(static_cast<int64_t>(i)).equal(tensors[i])) << i;
    EXPECT_TRUE(buffer.view(static_cast<int64_t>(i)).is_contiguous()) << i;
  }
}

TEST(FlatBuffer, KeepsTheMemoryFormatItIsAskedFor) {
  const std::vector<at::Tensor> tensors{at::randn({2, 3, 4, 5}), at::randn({2, 3, 4, 5, 6}), at::randn({7, 8}).t(),
                                        at::randn({4, 1, 3, 3})};
  const auto channels_last = FlatBuffer::flatten(tensors, at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(channels_last.view(0).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(channels_last.view(1).is_contiguous(at::MemoryFormat::ChannelsLast3d));
  EXPECT_TRUE(channels_last.view(2).is_contiguous());
  EXPECT_TRUE(channels_last.view(3).is_contiguous(at::MemoryFormat::ChannelsLast));
  const auto preserved = FlatBuffer::flatten(tensors, at::MemoryFormat::Preserve);
  EXPECT_EQ(preserved.view(2).strides(), tensors[2].strides());
  for (const auto& buffer : {channels_last, preserved})
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(buffer.view(static_cast<int64_t>(i)).equal(tensors[i])) << i;
}

TEST(FlatBuffer, NoTensorsAndOnlyEmptyOnesAreLegal) {
  const auto none = FlatBuffer::flatten(std::vector<at::Tensor>{});
  EXPECT_EQ(none.layout().size(), 0);
  EXPECT_TRUE(none.layout().rows().empty());
  const auto empty = FlatBuffer::flatten(std::vector{at::empty({0}), at::empty({3, 0})});
  EXPECT_EQ(empty.row().numel(), 0);
  EXPECT_EQ(empty.view(1).sizes(), (at::IntArrayRef{3, 0}));
}

TEST(FlatBuffer, LeavesOfManyReplicasAliasOneRowOfWeights) {
  const std::vector<at::Tensor> initial{at::randn({4, 3}), at::randn({4})};
  const auto weights = FlatBuffer::flatten(initial);
  const at::Tensor input = at::randn({2, 3});
  std::vector<std::vector<at::Tensor>> replicas;
  for (int replica = 0; replica < 2; ++replica) {
    replicas.push_back({at::randn({4, 3}).requires_grad_(), at::randn({4}).requires_grad_()});
    weights.point_data(replicas.back());
  }
  for (int replica = 0; replica < 2; ++replica)
    for (int pass = 0; pass < 2; ++pass) {  // twice, so that the second accumulates
      const auto& parameters = replicas[static_cast<size_t>(replica)];
      (at::linear(input, parameters[0], parameters[1]).square().sum() * (replica + 1)).backward();
    }
  for (int replica = 0; replica < 2; ++replica) {
    const auto& parameters = replicas[static_cast<size_t>(replica)];
    std::vector<at::Tensor> reference{initial[0].clone().requires_grad_(), initial[1].clone().requires_grad_()};
    (at::linear(input, reference[0], reference[1]).square().sum() * (2 * (replica + 1))).backward();
    for (int64_t i = 0; i < 2; ++i) {
      const at::Tensor& parameter = parameters[static_cast<size_t>(i)];
      EXPECT_TRUE(parameter.is_leaf());
      EXPECT_EQ(address(parameter), address(weights.view(i)));
      EXPECT_TRUE(parameter.grad().allclose(reference[static_cast<size_t>(i)].grad())) << replica << ", " << i;
    }
  }
  // One write to the row is an update of all replicas.
  weights.row().add_(1);
  EXPECT_TRUE(replicas[0][0].equal(initial[0] + 1));
  EXPECT_TRUE(replicas[1][1].equal(initial[1] + 1));
}

TEST(FlatBuffer, AChannelsLastConvolutionTrainsThroughTheViews) {
  const std::vector<at::Tensor> initial{at::randn({6, 3, 3, 3}), at::randn({6})};
  const auto weights = FlatBuffer::flatten(initial, at::MemoryFormat::ChannelsLast);
  std::vector<at::Tensor> parameters{at::empty({6, 3, 3, 3}).requires_grad_(), at::empty({6}).requires_grad_()};
  weights.point_data(parameters);
  const at::Tensor input = at::randn({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  at::conv2d(input, parameters[0], parameters[1]).square().sum().backward();
  std::vector<at::Tensor> reference{initial[0].clone().requires_grad_(), initial[1].clone().requires_grad_()};
  at::conv2d(input, reference[0], reference[1]).square().sum().backward();
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_TRUE(
        parameters[static_cast<size_t>(i)].grad().allclose(reference[static_cast<size_t>(i)].grad(), 1e-4, 1e-4))
        << i;
  EXPECT_TRUE(parameters[0].grad().is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(FlatLayout, FollowsFromShapesAlone) {
  const FlatLayout a(various()), b(various());
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a == FlatLayout(various(), at::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(a == FlatLayout(various(at::kDouble)));
}

template <class Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FlatLayout, MistakesAreErrorsThatSayWhatWasGotAndExpected) {
  const at::Tensor tensor = at::zeros({2, 3});
  EXPECT_EQ(message_of([&] {
              FlatLayout(std::vector{tensor, tensor});
            }),
            "FlatLayout: tensor 1 was given before, expected every tensor once");
  EXPECT_THROW(FlatLayout(std::vector{at::Tensor()}), Error);
  EXPECT_THROW(FlatLayout(std::vector{tensor.to_sparse()}), Error);
  const auto buffer = FlatBuffer::flatten(std::vector{tensor});
  EXPECT_EQ(message_of([&] {
              buffer.point_data(std::vector{at::zeros({3, 2})});
            }),
            "FlatBuffer::point_data: tensor 0 has shape [3, 2], expected [2, 3]");
  EXPECT_EQ(message_of([&] {
              buffer.point_data(std::vector{at::zeros({2, 3}, at::kDouble)});
            }),
            "FlatBuffer::point_data: tensor 0 has dtype float64, expected float32");
  EXPECT_EQ(message_of([&] { buffer.point_data(std::vector<at::Tensor>{}); }),
            "FlatBuffer::point_data: got 0 tensors, expected 1");
}

}  // namespace
}  // namespace lockstep
