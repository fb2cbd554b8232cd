// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/random_scope.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sample_dirichlet.h>
#include <ATen/ops/_standard_gamma.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/alpha_dropout.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/binomial.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/feature_alpha_dropout.h>
#include <ATen/ops/feature_dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randint_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/rrelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/numerics/detail/generator.h"

namespace lockstep {
namespace {

namespace F = torch::nn::functional;
using DrawsByName = std::map<std::string, std::function<at::Tensor()>>;

at::Tensor some() {
  return at::linspace(0.1, 0.9, 96).view({4, 6, 4});
}

/// Operations that draw from a generator they may be given.
DrawsByName primitives() {
  return {
      {"bernoulli", [] { return at::bernoulli(some()); }},
      {"bernoulli.p", [] { return at::bernoulli(some(), 0.5); }},
      {"bernoulli.out",
       [] {
         auto out = some();
         return at::bernoulli_out(out, some(), std::nullopt).clone();
       }},
      {"bernoulli_.float", [] { return some().bernoulli_(0.5); }},
      {"bernoulli_.Tensor", [] { return some().bernoulli_(some()); }},
      {"rand", [] { return at::rand({40}); }},
      {"randn", [] { return at::randn({40}); }},
      {"randint", [] { return at::randint(1000, {40}); }},
      {"randperm", [] { return at::randperm(40); }},
      {"rand_like", [] { return at::rand_like(some()); }},
      {"randn_like", [] { return at::randn_like(some()); }},
      {"randint_like", [] { return at::randint_like(some(), 1000); }},
      {"random_", [] { return some().random_(); }},
      {"random_.to", [] { return some().random_(1000); }},
      {"random_.from", [] { return some().random_(5, 1000); }},
      {"uniform_", [] { return some().uniform_(); }},
      {"normal_", [] { return some().normal_(); }},
      {"normal.Tensor_float", [] { return at::normal(some(), 2.0); }},
      {"normal.float_Tensor", [] { return at::normal(2.0, some()); }},
      {"normal.Tensor_Tensor", [] { return at::normal(some(), some()); }},
      {"normal.float_float", [] { return at::normal(1.0, 2.0, {40}); }},
      {"exponential_", [] { return some().exponential_(); }},
      {"geometric_", [] { return some().geometric_(0.1); }},
      {"cauchy_", [] { return some().cauchy_(); }},
      {"log_normal_", [] { return some().log_normal_(); }},
      {"multinomial", [] { return at::multinomial(at::rand({40}) + 0.1, 20); }},
      {"multinomial with replacement",
       [] {
         return at::multinomial(some().view({2, 48}), 60, true);
       }},
      {"poisson", [] { return at::poisson(some() * 50); }},
      {"binomial", [] { return at::binomial(at::full({40}, 100.), at::full({40}, 0.5)); }},
      {"_standard_gamma", [] { return at::_standard_gamma(some()); }},
      {"_sample_dirichlet", [] { return at::_sample_dirichlet(some()); }},
      {"rrelu", [] { return at::rrelu(-some(), 0.1, 0.4, true); }},
      {"rrelu_",
       [] {
         auto x = -some();
         return at::rrelu_(x, 0.1, 0.4, true);
       }},
  };
}

/// Layers and functions that take no generator.
DrawsByName layers() {
  const auto apply = [](auto layer, const at::Tensor& x) {
    layer->train();
    return layer->forward(x);
  };
  return {
      {"dropout", [] { return at::dropout(some(), 0.5, true); }},
      {"dropout_",
       [] {
         auto x = some();
         return at::dropout_(x, 0.5, true);
       }},
      {"feature_dropout", [] { return at::feature_dropout(some(), 0.5, true); }},
      {"alpha_dropout", [] { return at::alpha_dropout(some(), 0.5, true); }},
      {"feature_alpha_dropout", [] { return at::feature_alpha_dropout(some(), 0.5, true); }},
      {"native_dropout", [] { return std::get<0>(at::native_dropout(some(), 0.5, true)); }},
      {"Dropout2d", [apply] { return apply(torch::nn::Dropout2d(), some()); }},
      {"RReLU", [apply] { return apply(torch::nn::RReLU(), -some()); }},
      {"gumbel_softmax", [] { return F::gumbel_softmax(some()); }},
      {"LSTM",
       [] {
         torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 5).num_layers(2).dropout(0.5));
         return std::get<0>(lstm->forward(some()));
       }},
      {"GRU",
       [] {
         torch::nn::GRU gru(torch::nn::GRUOptions(4, 5).num_layers(3).dropout(0.5).bidirectional(true));
         return std::get<0>(gru->forward(some()));
       }},
      {"MultiheadAttention",
       [] {
         torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(4, 2).dropout(0.5));
         return std::get<0>(attention->forward(some(), some(), some()));
       }},
      {"scaled_dot_product_attention",
       [] {
         const at::Tensor q = some().unsqueeze(0);
         return at::scaled_dot_product_attention(q, q, q, {}, 0.5);
       }},
      {"TransformerEncoderLayer",
       [apply] {
         return apply(torch::nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(4, 2)), some());
       }},
      {"kaiming_uniform_", [] { return torch::nn::Linear(5, 7)->weight.detach(); }},
      {"fractional_max_pool2d",
       [] {
         return F::fractional_max_pool2d(at::arange(400.).view({1, 1, 20, 20}).sin(),
                                         F::FractionalMaxPool2dFuncOptions(2).output_size(8));
       }},
  };
}

DrawsByName all_draws() {
  DrawsByName draws = primitives();
  draws.merge(layers());
  return draws;
}

at::Tensor default_state() {
  return at::detail::getDefaultCPUGenerator().get_state();
}

at::Tensor under(RandomKey key, const std::function<at::Tensor()>& draw) {
  const RandomScope scope(key);
  return draw();
}

const RandomKey kKey{7, 3}, kOther{7, 4};

TEST(RandomScope, EveryRandomOperationFollowsTheKeyAndLeavesTheDefaultGeneratorAlone) {
  for (const auto& [name, draw] : all_draws()) {
    SCOPED_TRACE(name);
    const at::Tensor before = default_state(), first = under(kKey, draw);
    EXPECT_TRUE(at::equal(under(kKey, draw), first)) << "does not repeat";
    EXPECT_FALSE(at::equal(under(kOther, draw), first)) << "does not follow the key";
    EXPECT_TRUE(at::equal(default_state(), before)) << "drew from the default generator";
  }
}

TEST(RandomScope, AutogradAndInferenceModeChangeNoNumber) {
  for (const auto& [name, draw] : all_draws()) {
    SCOPED_TRACE(name);
    const at::Tensor first = under(kKey, draw);
    {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::allclose(under(kKey, draw), first)) << "without gradients";  // an LSTM rounds differently
    }
    const c10::InferenceMode inference;
    EXPECT_TRUE(at::allclose(under(kKey, draw), first)) << "in inference mode";
  }
}

TEST(RandomScope, ThreadsThatDrawAtTheSameTimeDrawWhatEachDrawsAlone) {
  std::vector<std::function<at::Tensor()>> draws;
  for (const auto& [name, draw] : all_draws()) draws.push_back(draw);
  const auto run = [&](uint64_t replica) {
    const RandomScope scope(RandomKey{1}.fold(replica));
    std::vector<at::Tensor> drawn;
    for (const auto& draw : draws) drawn.push_back(draw().detach());
    return drawn;
  };
  std::vector<std::vector<at::Tensor>> alone, together(3);
  for (uint64_t replica = 0; replica < 3; ++replica) alone.push_back(run(replica));
  {
    std::vector<std::jthread> threads;
    for (size_t replica = 0; replica < 3; ++replica)
      threads.emplace_back([&, replica] { together[replica] = run(replica); });
  }
  for (size_t replica = 0; replica < 3; ++replica)
    for (size_t i = 0; i < draws.size(); ++i) EXPECT_TRUE(at::equal(together[replica][i], alone[replica][i])) << i;
}

TEST(RandomScope, DrawsAreNumberedFromTheBeginning) {
  RandomScope scope(kKey);
  const at::Tensor first = at::rand({8}), second = at::rand({8});
  EXPECT_FALSE(at::equal(first, second));
  scope.begin(kKey);
  EXPECT_TRUE(at::equal(at::rand({8}), first));
  at::randn({1000});  // however many numbers a draw takes, the next one starts at its own key
  scope.begin(kKey);
  at::randn({3});
  EXPECT_TRUE(at::equal(at::rand({8}), second));
  EXPECT_TRUE(at::equal(second, at::rand({8}, keyed_generator(kKey.fold(1)))));
}

TEST(RandomScope, NestsAndLetsAGivenGeneratorBe) {
  const at::Tensor expected = at::rand({8}, keyed_generator(kOther));
  const RandomScope outer(kKey);
  EXPECT_EQ(RandomScope::current(), &outer);
  const at::Tensor first = at::rand({8});
  {
    const RandomScope inner(kOther);
    at::rand({8});
    EXPECT_TRUE(at::equal(at::rand({8}, keyed_generator(kOther)), expected));
  }
  EXPECT_EQ(RandomScope::current(), &outer);
  EXPECT_TRUE(at::equal(at::rand({8}), at::rand({8}, keyed_generator(kKey.fold(1)))));
  EXPECT_FALSE(at::equal(first, expected));
}

TEST(RandomScope, WithoutOneTheDefaultGeneratorServes) {
  at::manual_seed(11);
  const at::Tensor normal = at::randn({40}), mask = at::dropout(at::ones(40), 0.5, true);
  const at::Generator same = at::make_generator<at::CPUGeneratorImpl>(11);
  EXPECT_TRUE(at::equal(normal, at::randn({40}, same)));
  EXPECT_TRUE(at::equal(mask, at::empty(40).bernoulli_(0.5, same) * 2));
}

TEST(RandomScope, DropoutKeepsItsGradient) {
  const RandomScope scope(kKey);
  const at::Tensor x = at::ones(64).requires_grad_();
  const at::Tensor y = std::get<0>(at::native_dropout(x, 0.25, true)) + at::dropout(x, 0.25, true);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y.detach()));
}

TEST(RandomScope, AKeyIsDrawnFromTheScopeOrTheDefaultGenerator) {
  at::manual_seed(2);
  const RandomKey first = draw_key();
  EXPECT_FALSE(draw_key() == first);
  at::manual_seed(2);
  EXPECT_TRUE(draw_key() == first);
  const RandomScope scope(kKey);
  EXPECT_TRUE(draw_key() == kKey.fold(0));
}

}  // namespace
}  // namespace lockstep
