// SPDX-License-Identifier: Apache-2.0
// What a network's stages take is looked at, and nothing of the network is changed by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/context/stages.h"
#include "parallel/split/border.h"
#include "parallel/split/processes/stage_tensors.h"
#include "support/error_of.h"

namespace lockstep::parallel {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using torch::Tensor;
namespace nn = torch::nn;

constexpr double kSlow = 0.02;  // seconds

/// Does nothing forwards, and computes for long backwards.
struct SlowBack : torch::autograd::Function<SlowBack> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    const double end = thread_seconds() + kSlow;
    while (thread_seconds() < end) {
    }
    return gradients;
  }
};

struct LookedImpl : nn::Cloneable<LookedImpl>, Staged {
  LookedImpl() { reset(); }
  void reset() override {
    one = register_module("one", nn::Linear(3, 3));
    norm = register_module("norm", nn::BatchNorm1d(3));
    two = register_module("two", nn::Linear(3, 3));
  }
  std::vector<Stage> stages() override {
    return {{"slow", [this](const Tensor& x) { return SlowBack::apply(one(x)); }},
            {"in place", [this](const Tensor& x) { return norm(x.relu_()); }},
            {"two", [this](const Tensor& x) { return two(x); }}};
  }
  Tensor forward(const Tensor& x) { return fold<Tensor>(stages(), x); }

  nn::Linear one{nullptr}, two{nullptr};
  nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Looked);

TEST(LookAtStages, SeesBothPassesAndWhatEachUsesAndChangesNothing) {
  torch::manual_seed(1);
  Looked network;
  const Tensor input = torch::randn({4, 3}), kept = input.clone(), mean = network->norm->running_mean.clone();
  UnfilledWeights unfilled;
  Bundle bundle;
  bundle.put(input);
  const std::vector<StageLook> looks = look_at_stages(*network, bundle, unfilled);
  ASSERT_EQ(looks.size(), 3);
  EXPECT_GE(looks[0].seconds, kSlow);
  const auto* one = network->one->weight.unsafeGetTensorImpl();
  EXPECT_THAT(looks[0].tensors, Contains(one));
  EXPECT_THAT(looks[1].tensors, Not(Contains(one)));
  EXPECT_THAT(looks[1].tensors, Contains(network->norm->running_mean.unsafeGetTensorImpl()));
  EXPECT_THAT(looks[2].tensors, Contains(network->two->bias.unsafeGetTensorImpl()));
  EXPECT_TRUE(torch::equal(input, kept));
  EXPECT_TRUE(torch::equal(network->norm->running_mean, mean));
  EXPECT_TRUE(network->is_training());
  for (const Tensor& parameter : network->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

/// A residual block that is cut open: what is added at its end goes there by a member.
struct OpenBlockImpl : nn::Cloneable<OpenBlockImpl>, Staged {
  explicit OpenBlockImpl(bool keeps_input) : keeps_input(keeps_input) { reset(); }
  void reset() override {
    one = register_module("one", nn::Linear(3, 3));
    two = register_module("two", nn::Linear(3, 3));
  }
  std::vector<Stage> stages() override {
    return {{"one",
             [this](const Tensor& x) {
               const Tensor y = one(x);
               kept = keeps_input ? x : y.sin();
               return y;
             }},
            {"two", [this](const Tensor& x) { return two(x) + kept; }}};
  }

  bool keeps_input;
  Tensor kept;
  nn::Linear one{nullptr}, two{nullptr};
};

TEST(LookAtStages, RefusesATensorThatGoesAroundTheBundle) {
  Bundle bundle;
  bundle.put(torch::ones({4, 3}));
  for (const bool keeps_input : {false, true}) {
    const auto network = std::make_shared<OpenBlockImpl>(keeps_input);
    UnfilledWeights unfilled;
    EXPECT_THAT(test::error_of([&] { look_at_stages(*network, bundle, unfilled); }),
                HasSubstr("stage 'two' uses a tensor that a stage before it has and that is not in its bundle"));
  }
}

}  // namespace
}  // namespace lockstep::parallel
