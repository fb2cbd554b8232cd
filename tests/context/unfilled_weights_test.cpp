// SPDX-License-Identifier: Apache-2.0
// Weights that wait for their values end up with those that they would have had from the beginning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <functional>

#include "lockstep/context/detail/unfilled_weights.h"
#include "lockstep/context/draws.h"
#include "lockstep/context/overrides.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/numerics/detail/flat.h"
#include "lockstep/numerics/random.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using torch::Tensor;
namespace nn = torch::nn;

bool has_memory(const Tensor& tensor) {
  return tensor.storage().data() != nullptr;
}

struct Unfilled : testing::Test {
  Unfilled() { install_overrides(); }

  /// What `make` gives where nothing waits.
  static Tensor at_once(const std::function<Tensor()>& make) {
    const RandomScope draws(RandomKey{7});
    return make();
  }
  Tensor waiting(const std::function<Tensor()>& make) {
    const RandomScope draws(RandomKey{7});
    const UnfilledWeights::Scope scope(weights);
    return make();
  }

  UnfilledWeights weights;
};

TEST_F(Unfilled, GetsItsValuesWhenAnOperationUsesIt) {
  const auto second = [] {
    nn::Linear first(3, 5);
    return nn::Linear(5, 4)->weight;
  };
  const Tensor expected = at_once(second), weight = waiting(second);
  EXPECT_FALSE(has_memory(weight));
  EXPECT_THAT(weights.recipe(weight), HasSubstr("aten::uniform_"));
  EXPECT_THROW((void)weight.data_ptr<float>(), c10::Error);
  const UnfilledWeights::Scope scope(weights);
  const Tensor alias = weight.detach();
  EXPECT_FALSE(has_memory(weight));
  EXPECT_TRUE(torch::equal(alias, expected));
  EXPECT_TRUE(has_memory(weight));
  EXPECT_EQ(weights.recipe(weight), "");
}

TEST_F(Unfilled, RemembersAllThatWasDoneToIt) {
  const std::vector<std::function<Tensor()>> makes = {
      [] {
        const Tensor kernel = torch::empty({2, 3, 4}, torch::requires_grad());
        normal_(kernel, draw_key());
        const torch::NoGradGuard no_grad;
        return kernel.mul_(0.25);
      },
      [] {
        nn::Conv2d layer(nn::Conv2dOptions(2, 3, 5));
        return nn::init::xavier_normal_(layer->weight);
      },
      [] {
        nn::Linear layer(3, 4);
        const torch::NoGradGuard no_grad;
        layer->weight[1].zero_();  // a part of it: it has to be there
        return nn::Linear(2, 2)->weight + layer->weight.sum();
      }};
  for (const auto& make : makes) {
    const Tensor expected = at_once(make), weight = waiting(make);
    weights.fill(weight);
    EXPECT_TRUE(torch::equal(weight, expected));
  }
}

TEST_F(Unfilled, LiesWhereItIsPlaced) {
  const auto make = [] { return nn::Conv2d(nn::Conv2dOptions(4, 3, 5))->weight; };
  const Tensor expected = at_once(make), weight = waiting(make);
  const auto flat = FlatBuffer::flatten(std::vector<Tensor>{weight}, torch::MemoryFormat::ChannelsLast);
  weight.set_data(weights.placed(weight, flat.view(0)));
  weights.close();
  EXPECT_FALSE(has_memory(weight));
  EXPECT_EQ(flat.row().count_nonzero().item<int64_t>(), 0);
  {
    UnfilledWeights::Loan loan(weights);
    weights.fill(weight);
    EXPECT_TRUE(torch::equal(weight, expected));
    loan.give_back();
    EXPECT_FALSE(has_memory(weight));
  }
  weights.fill(weight);
  EXPECT_EQ(weight.const_data_ptr(), flat.view(0).const_data_ptr());
  EXPECT_TRUE(torch::equal(weight, expected));
  EXPECT_TRUE(torch::equal(flat.view(0), expected));
}

TEST_F(Unfilled, GetsMemoryOfItsOwnWhereItHasNoPlace) {
  const auto make = [] { return nn::Linear(3, 4)->weight; };
  const Tensor expected = at_once(make), weight = waiting(make);
  weights.close();
  EXPECT_TRUE(torch::equal(weight, expected));
  EXPECT_TRUE(has_memory(waiting(make)));
}

}  // namespace
}  // namespace lockstep
