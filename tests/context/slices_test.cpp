// SPDX-License-Identifier: Apache-2.0
// A layer in slices: what its definition says, bit by bit, and the whole one but for rounding.
#include "lockstep/context/detail/slices.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/context/detail/context.h"
#include "lockstep/numerics/pinned.h"

namespace lockstep::test {
namespace {

using torch::Tensor;

/// y, and the gradients of all that went in.
using Results = std::vector<Tensor>;
using Layer = std::function<Tensor(const std::vector<Tensor>&)>;

Results passes(const Layer& layer, std::vector<Tensor> inputs) {
  for (Tensor& input : inputs) input = input.detach().clone().requires_grad_();
  const Tensor y = layer(inputs);
  const Tensor weights = torch::linspace(-1, 1, y.numel(), y.options().requires_grad(false)).view(y.sizes());
  Results results{y.detach()};
  for (const Tensor& gradient : torch::autograd::grad({y}, inputs, {weights})) results.push_back(gradient);
  return results;
}

Results passes_in(int64_t count, const Layer& layer, const std::vector<Tensor>& inputs) {
  const Slices slices(count);
  const ContextScope scope({.slices = &slices});
  return passes(layer, inputs);
}

Tensor numbers(at::IntArrayRef sizes, torch::Dtype type = torch::kDouble) {
  return torch::randn(sizes, torch::TensorOptions().dtype(type));
}

struct Case {
  std::string name;
  Layer layer;
  std::vector<Tensor> inputs;  // x, weight and, in most, bias
};

std::vector<Case> cases() {
  torch::manual_seed(3);
  const auto conv2d = [](const std::vector<Tensor>& in) {
    return torch::conv2d(in[0], in[1], in.size() < 3 ? Tensor() : in[2], at::IntArrayRef{2}, at::IntArrayRef{1});
  };
  const auto linear = [](const std::vector<Tensor>& in) {
    return torch::nn::functional::linear(in[0], in[1], in.size() < 3 ? Tensor() : in[2]);
  };
  return {
      {"conv1d",
       [](const std::vector<Tensor>& in) { return torch::conv1d(in[0], in[1], in[2]); },
       {numbers({3, 4, 11}), numbers({7, 4, 3}), numbers({7})}},
      {"conv2d", conv2d, {numbers({3, 4, 9, 8}), numbers({7, 4, 3, 3}), numbers({7})}},
      {"conv2d with fewer channels than slices", conv2d, {numbers({3, 4, 9, 8}), numbers({2, 4, 3, 3}), numbers({2})}},
      {"conv2d without images", conv2d, {numbers({0, 4, 9, 8}), numbers({7, 4, 3, 3}), numbers({7})}},
      {"conv2d without bias", conv2d, {numbers({3, 4, 9, 8}), numbers({7, 4, 3, 3})}},
      {"conv2d in channels-last",
       conv2d,
       {numbers({3, 4, 9, 8}).contiguous(at::MemoryFormat::ChannelsLast),
        numbers({7, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast), numbers({7})}},
      {"conv3d",
       [](const std::vector<Tensor>& in) { return torch::conv3d(in[0], in[1], in[2]); },
       {numbers({2, 3, 5, 5, 4}), numbers({6, 3, 3, 3, 3}), numbers({6})}},
      {"transposed",
       [](const std::vector<Tensor>& in) { return torch::conv_transpose2d(in[0], in[1], in[2], at::IntArrayRef{2}); },
       {numbers({3, 4, 5, 6}), numbers({4, 7, 2, 2}), numbers({7})}},
      {"in groups",
       [](const std::vector<Tensor>& in) {
         return torch::conv2d(in[0], in[1], in[2], at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1}, 2);
       },
       {numbers({3, 4, 6, 5}), numbers({8, 2, 3, 3}), numbers({8})}},
      {"linear", linear, {numbers({5, 6}), numbers({7, 6}), numbers({7})}},
      {"linear without bias", linear, {numbers({5, 6}), numbers({7, 6})}},
      {"linear with fewer channels than slices", linear, {numbers({5, 6}), numbers({2, 6}), numbers({2})}},
      {"linear without examples", linear, {numbers({0, 6}), numbers({7, 6}), numbers({7})}},
      {"linear of sequences", linear, {numbers({2, 5, 6}), numbers({7, 6}), numbers({7})}},
      {"torch::linear",
       [](const std::vector<Tensor>& in) { return torch::linear(in[0], in[1], in[2]); },
       {numbers({2, 5, 6}), numbers({7, 6}), numbers({7})}},
      {"a product with what lies by rows",
       [](const std::vector<Tensor>& in) { return torch::mm(in[0], in[1]); },
       {numbers({5, 6}), numbers({6, 7})}},
      {"a sum that is weighted",
       [](const std::vector<Tensor>& in) { return torch::addmm(in[2], in[0], in[1], 0.5, 2); },
       {numbers({5, 6}), numbers({6, 7}), numbers({5, 7})}},
      {"a gradient's gradient",
       [linear](const std::vector<Tensor>& in) {
         return torch::autograd::grad({linear(in).square().sum()}, {in[0]}, {}, true, true)[0];
       },
       {numbers({5, 6}), numbers({7, 6}), numbers({7})}},
  };
}

TEST(Slices, AgreeWithTheWholeLayer) {
  for (const Case& one : cases()) {
    const Results whole = passes(one.layer, one.inputs);
    for (const int64_t count : {2, 3, 4}) {
      const Results sliced = passes_in(count, one.layer, one.inputs);
      ASSERT_EQ(sliced.size(), whole.size());
      for (size_t r = 0; r < whole.size(); ++r) {
        ASSERT_EQ(sliced[r].sizes(), whole[r].sizes()) << one.name;
        EXPECT_TRUE(torch::allclose(sliced[r], whole[r], 1e-12, 1e-12)) << one.name << ", result " << r;
      }
    }
  }
}

TEST(Slices, AreComputedApartAndSummedAsTheTree) {
  pin_numerics();
  const ReplicaNumerics numerics;
  torch::manual_seed(5);
  const Tensor x = numbers({4, 24, 9, 9}, torch::kFloat), weight = numbers({13, 24, 3, 3}, torch::kFloat),
               bias = numbers({13}, torch::kFloat);
  const auto layer = [](const std::vector<Tensor>& in) { return torch::conv2d(in[0], in[1], in[2]); };
  const Results sliced = passes_in(3, layer, {x, weight, bias});
  const Tensor gradient = torch::linspace(-1, 1, sliced[0].numel()).view(sliced[0].sizes());
  std::vector<Tensor> y, of_x, of_weight;
  for (const auto& [begin, size] : {std::pair{0, 5}, {5, 4}, {9, 4}}) {
    const Tensor input = x.clone().requires_grad_(), w = weight.narrow(0, begin, size).clone().requires_grad_();
    y.push_back(torch::conv2d(input, w, bias.narrow(0, begin, size)));
    const auto gradients =
        torch::autograd::grad({y.back()}, {input, w}, {gradient.narrow(1, begin, size).contiguous()});
    of_x.push_back(gradients[0]);
    of_weight.push_back(gradients[1]);
  }
  EXPECT_TRUE(torch::equal(sliced[0], torch::cat(y, 1)));
  EXPECT_TRUE(torch::equal(sliced[1], (of_x[0] + of_x[1]) + of_x[2]));
  EXPECT_FALSE(torch::equal(sliced[1], of_x[0] + (of_x[1] + of_x[2]))) << "another order would not be noticed";
  EXPECT_TRUE(torch::equal(sliced[2], torch::cat(of_weight)));
}

TEST(Slices, OfALinearLayerAreComputedApartAndSummedAsTheTree) {
  pin_numerics();
  const ReplicaNumerics numerics;
  torch::manual_seed(5);
  const Tensor x = numbers({9, 40}, torch::kFloat), weight = numbers({13, 40}, torch::kFloat),
               bias = numbers({13}, torch::kFloat);
  const auto layer = [](const std::vector<Tensor>& in) { return torch::nn::functional::linear(in[0], in[1], in[2]); };
  const Results sliced = passes_in(3, layer, {x, weight, bias});
  const Tensor gradient = torch::linspace(-1, 1, sliced[0].numel()).view(sliced[0].sizes());
  std::vector<Tensor> y, of_x, of_weight, of_bias;
  for (const auto& [begin, size] : {std::pair{0, 5}, {5, 4}, {9, 4}}) {
    const Tensor w = weight.narrow(0, begin, size), g = gradient.narrow(1, begin, size);
    y.push_back(torch::addmm(bias.narrow(0, begin, size), x, w.t()));
    of_x.push_back(torch::mm(g, w));
    of_weight.push_back(torch::mm(g.t(), x));
    of_bias.push_back(g.sum(0));
  }
  EXPECT_TRUE(torch::equal(sliced[0], torch::cat(y, 1)));
  EXPECT_TRUE(torch::equal(sliced[1], (of_x[0] + of_x[1]) + of_x[2]));
  EXPECT_FALSE(torch::equal(sliced[1], of_x[0] + (of_x[1] + of_x[2]))) << "another order would not be noticed";
  EXPECT_TRUE(torch::equal(sliced[2], torch::cat(of_weight)));
  EXPECT_TRUE(torch::equal(sliced[3], torch::cat(of_bias)));
}

// What runs them may take any order and any threads.
TEST(Slices, AreTheSameWhoeverComputesThem) {
  for (const Case& one : cases()) {
    const Results alone = passes_in(3, one.layer, one.inputs);
    int64_t runs = 0;
    const Slices slices(3, [&](int64_t count, const std::function<void(int64_t)>& part) {
      ++runs;
      for (int64_t slice = count; slice-- > 0;) part(slice);
    });
    const ContextScope scope({.slices = &slices});
    const Results shared = passes(one.layer, one.inputs);
    for (size_t r = 0; r < alone.size(); ++r) EXPECT_TRUE(torch::equal(shared[r], alone[r])) << one.name;
    EXPECT_EQ(runs > 0, one.name != "in groups") << one.name;
  }
}

}  // namespace
}  // namespace lockstep::test
