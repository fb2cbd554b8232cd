// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/registry.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/unfilled_weights.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/models/init.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/sparse/nn/blocks.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Small enough to be quick.
Options small(const std::string& name, int64_t size = 16) {
  Options options{.input = {3, size, size}, .classes = 7};
  const Registry registry = builtin();
  for (const Setting& setting : registry.find(name).settings)
    if (setting.name == "width") options.settings["width"] = "0.125";
  return options;
}

// Those that take images. Networks of clouds have a test of their own.
std::vector<std::string> names() {
  const Registry registry = builtin();
  std::vector<std::string> all;
  for (const Entry& entry : registry.entries())
    if (entry.labels == Labels::examples) all.push_back(entry.name);
  return all;
}

TEST(Registry, MakesEveryNetworkAndItsDescription) {
  EXPECT_THAT(names(),
              testing::ElementsAre("lenet", "mlp", "alexnet", "vgg", "resnet18", "resnet34", "resnet50", "c4", "d4"));
  const Registry registry = builtin();
  for (const std::string& name : names()) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(registry.find(name).description.empty());
    const auto net = make(name, small(name));
    EXPECT_EQ(net->forward(at::zeros({2, 3, 16, 16})).sizes(), at::IntArrayRef({2, 7}));
  }
}

TEST(Registry, NetworksTakeEmptyBatchesForwardsAndBackwards) {
  for (const std::string& name : names()) {
    SCOPED_TRACE(name);
    const auto net = make(name, small(name));
    const auto logits = net->forward(at::zeros({0, 3, 16, 16}));
    EXPECT_EQ(logits.sizes(), at::IntArrayRef({0, 7}));
    logits.sum().backward();
    for (const auto& item : net->named_parameters())
      EXPECT_EQ(item.value().grad().abs().sum().item<double>(), 0) << item.key();
  }
}

TEST(Registry, NetworksComputeTheSameInChannelsLast) {
  for (const std::string& name : names()) {
    SCOPED_TRACE(name);
    at::manual_seed(1);
    const auto net = make(name, small(name));
    net->to(at::kDouble);
    net->eval();
    const auto x = at::randn({3, 3, 16, 16}, at::kDouble);
    const auto expected = net->forward(x);
    for (const auto& parameter : net->parameters())
      if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(at::allclose(net->forward(x.contiguous(at::MemoryFormat::ChannelsLast)), expected, 1e-10, 1e-12));
  }
}

TEST(Registry, NetworksAreTheSameForTheSameKey) {
  for (const std::string& name : names()) {
    const auto weights = [&](uint64_t seed) {
      const RandomScope scope(RandomKey{seed});
      std::vector<at::Tensor> flat;
      for (const auto& parameter : make(name, small(name))->parameters()) flat.push_back(parameter.detach().flatten());
      return at::cat(flat);
    };
    const auto first = weights(5);
    at::rand({3});  // the default generator has no part in it
    EXPECT_TRUE(at::equal(weights(5), first)) << name;
    EXPECT_FALSE(at::equal(weights(6), first)) << name;
  }
}

TEST(Registry, SaysWhatIsWrongAndTheNearestName) {
  const auto expect = [](const std::string& name, const Options& options, const char* message) {
    EXPECT_THAT([&] { make(name, options); }, ThrowsMessage<Error>(HasSubstr(message))) << name;
  };
  expect("resnet81", {}, "models: there is no model 'resnet81', expected lenet, mlp,");
  expect("resnet81", {}, "minkresnet101 or minkfcnn (did you mean 'resnet18'?)");
  expect("resnet18", {.settings = {{"widht", "2"}}},
         "resnet18: there is no setting 'widht', expected width or stem (did you mean 'width'?)");
  expect("lenet", {.settings = {{"width", "2"}}}, "lenet: there is no setting 'width', expected none");
  expect("lenet", {.init = "xaver"},
         "there is no initialisation 'xaver', expected default, d2l, xavier or kaiming (did "
         "you mean 'xavier'?)");
  expect("resnet18", {.settings = {{"width", "two"}}}, "the setting width is 'two', expected a number");
  expect("resnet18", {.settings = {{"width", "-1"}}}, "resnet18: the setting width is -1, expected it above 0");
  expect("resnet18", {.settings = {{"stem", "smal"}}}, "expected auto, small or imagenet (did you mean 'small'?)");
  expect("mlp", {.settings = {{"hidden", "256,x"}}}, "the setting hidden is '256,x', expected integers");
  expect("mlp", {.settings = {{"hidden", "0"}}}, "a hidden layer has 0 units, expected at least 1");
  expect("mlp", {.settings = {{"dropout", "1"}}}, "dropout is 1, expected it in [0, 1)");
  expect("lenet", {.classes = 0}, "there are 0 classes, expected at least 1");
  expect("lenet", {.input = {784}}, "an example has the sizes [784], expected an image [channels, height, width]");
  expect("lenet", {.input = {}}, "an example has the sizes []");
  expect("lenet", {.input = {1, 8, 8}}, "images are 8x8, expected 14x14 or larger");
  expect("vgg", {.input = {1, 8, 28}}, "images are 8x28, expected 16x16 or larger");
  expect("c4", {.input = {1, 28, 32}}, "images are 28x32, expected square ones");
  expect("d4", {.input = {1, 30, 30}}, "expected a size that is a multiple of 4");
}

TEST(Registry, HandsOnAllSettings) {
  const auto full = builtin().complete("mlp", {.settings = {{"hidden", "64,32"}}});
  EXPECT_EQ(full.settings, (std::map<std::string, std::string>{{"hidden", "64,32"}, {"dropout", "0"}}));
  EXPECT_EQ(full.integers("hidden"), (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(full.real("dropout"), 0);
  EXPECT_THAT([&] { full.word("depth"); }, ThrowsMessage<Error>(HasSubstr("there is no setting 'depth'")));
  EXPECT_EQ(make("mlp", {.settings = {{"hidden", ""}}})->parameters().size(), 2u);  // a linear classifier
}

struct MineImpl : torch::nn::Cloneable<MineImpl> {
  explicit MineImpl(const Options& options) : options(options) { MineImpl::reset(); }
  void reset() override {
    scale = register_parameter("scale", at::ones({1}));
    steps = register_buffer("steps", at::zeros({1}));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
    fc = register_module("fc", torch::nn::Linear(options.input[0], options.classes));
  }
  at::Tensor forward(const at::Tensor& x) { return is_training() ? fc(dropout(x)) * scale : fc(x) * scale; }
  Options options;
  at::Tensor scale, steps;
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Mine);

TEST(Registry, TakesANetworkOfOnesOwnInOneLine) {
  auto registry = builtin();
  registry.add<MineImpl>("mine", "scaled");
  const auto net = registry.make("mine", {.input = {5}, .classes = 2, .init = "d2l"});
  EXPECT_EQ(net->forward(at::ones({3, 5})).sizes(), at::IntArrayRef({3, 2}));
  EXPECT_TRUE(at::equal(net->network()->as<Mine>()->fc->bias, at::zeros({2})));
  EXPECT_THAT([&] { registry.add<MineImpl>("mine", "again"); },
              ThrowsMessage<Error>(HasSubstr("there is a network 'mine' already")));
  EXPECT_THAT([&] { registry.add({"", "nameless", {}, {}}); }, ThrowsMessage<Error>(HasSubstr("the name is empty")));
  EXPECT_THAT([&] { registry.add({"none", "", {}, {}}); }, ThrowsMessage<Error>(HasSubstr("nothing to be made with")));
  EXPECT_THAT([&] { make("mine"); }, ThrowsMessage<Error>(HasSubstr("there is no model 'mine'")));
}

TEST(Classifier, IsTheNetworkUnderItsOwnNames) {
  Mine mine(Options{.input = {5}, .classes = 2});
  const auto net = Classifier::of(mine);
  EXPECT_EQ(net->name(), mine->name());
  EXPECT_EQ(state_dict(*net).size(), 4u);
  for (const auto& [name, tensor] : state_dict(*mine)) EXPECT_TRUE(state_dict(*net).at(name).is_alias_of(tensor));
  net->eval();
  EXPECT_FALSE(mine->is_training());
  EXPECT_FALSE(mine->dropout->is_training());
  const auto x = at::ones({3, 5});
  EXPECT_TRUE(at::equal(net->forward(x), mine->forward(x)));
  net->to(at::kDouble);
  EXPECT_EQ(mine->fc->weight.scalar_type(), at::kDouble);
  EXPECT_EQ(mine->steps.scalar_type(), at::kDouble);
  std::ostringstream out;
  out << *net;
  EXPECT_THAT(out.str(), HasSubstr("Linear"));
  EXPECT_EQ(Classifier::of(net), net);
  EXPECT_THAT([] { Classifier::of(std::shared_ptr<MineImpl>()); }, ThrowsMessage<Error>(HasSubstr("is empty")));
}

TEST(StateDict, WeightsThatWaitTakeTheirValuesWhenTheyAreUsed) {
  const StateDict state = state_dict(*make("lenet"));
  UnfilledWeights weights;
  const UnfilledWeights::Scope waiting(weights);
  const auto net = make("lenet");
  load_state_dict(*net, state, "somewhere");
  for (const auto& item : net->named_parameters()) {
    EXPECT_EQ(item.value().storage().data(), nullptr) << item.key();
    EXPECT_EQ(weights.recipe(item.value()), "somewhere " + item.key());
  }
  for (const auto& item : net->named_parameters()) EXPECT_TRUE(at::equal(item.value(), state.at(item.key())));
}

TEST(Classifier, ACloneStandsOnItsOwn) {
  const auto net = make("resnet18", small("resnet18"));
  net->eval();
  const auto copy = std::dynamic_pointer_cast<Classifier>(net->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_FALSE(copy->is_training());
  const auto x = at::ones({2, 3, 16, 16});
  EXPECT_TRUE(at::equal(copy->forward(x), net->forward(x)));
  const auto before = state_dict(*net), after = state_dict(*copy);
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(at::equal(after.at(name), tensor)) << name;
    EXPECT_FALSE(after.at(name).is_alias_of(tensor)) << name;
  }
}

TEST(Classifier, IsClonedAsAPartOfAnother) {
  struct EnsembleImpl : torch::nn::Cloneable<EnsembleImpl> {
    EnsembleImpl() { reset(); }
    void reset() override { member = register_module("member", make("mlp", {.input = {4}, .classes = 3})); }
    std::shared_ptr<Classifier> member;
  };
  const auto net = std::make_shared<EnsembleImpl>();
  const auto copy = std::dynamic_pointer_cast<EnsembleImpl>(net->clone());
  const auto x = at::ones({2, 4});
  EXPECT_TRUE(at::equal(copy->member->forward(x), net->member->forward(x)));
  EXPECT_FALSE(copy->parameters()[0].is_alias_of(net->parameters()[0]));
  EXPECT_TRUE(copy->parameters()[0].is_alias_of(copy->member->parameters()[0]));
}

TEST(Initialise, DrawsWeightsAndClearsBiasesAndLeavesNorms) {
  const auto net = make("vgg", {.input = {3, 32, 32}});
  const auto fan = [](const at::Tensor& weight, int64_t dim) {
    return static_cast<double>(weight.numel()) / static_cast<double>(weight.size(1 - dim));
  };
  for (const std::string how : {"d2l", "xavier", "kaiming"}) {
    initialise(*net, how);
    for (const auto& item : net->named_parameters()) {
      const auto& w = item.value();
      SCOPED_TRACE(how + " " + item.key());
      if (w.dim() >= 2) {
        const double fan_in = fan(w, 1), fan_out = fan(w, 0);
        const double expected = how == "d2l"      ? 0.01
                                : how == "xavier" ? std::sqrt(2 / (fan_in + fan_out))
                                                  : std::sqrt(2 / fan_in);
        EXPECT_NEAR(w.std().item<double>() / expected, 1, 0.05);
      } else {
        EXPECT_TRUE(at::equal(w, item.key().ends_with("bias") ? at::zeros_like(w) : at::ones_like(w)));
      }
    }
  }
  EXPECT_THAT([&] { initialise(*net, "kaimin"); }, ThrowsMessage<Error>(HasSubstr("(did you mean 'kaiming'?)")));
}

/// Kernels are [K, Cin, Cout], and biases, scales and shifts [1, C].
TEST(Initialise, KnowsTheFansAndTheBiasesOfSparseLayers) {
  const Options field{.input = {3}, .dimension = 2, .classes = 20, .settings = {{"field", "1"}}};
  for (const auto& net :
       {make("minkunet14a", {.input = {3}, .dimension = 2, .classes = 20}), make("minkresnet14", field)})
    for (const std::string how : {"d2l", "xavier", "kaiming"}) {
      initialise(*net, how);
      for (const auto& item : net->named_parameters()) {
        const auto& w = item.value();
        SCOPED_TRACE(how + " " + item.key());
        if (item.key().ends_with("coef")) continue;
        if (item.key().ends_with("bias")) {
          EXPECT_TRUE(at::equal(w, at::zeros_like(w)));
        } else if (w.numel() == w.size(-1)) {
          EXPECT_TRUE(at::equal(w, at::ones_like(w)));  // of a norm
        } else if (w.numel() > 4000) {
          const double volume = w.dim() == 3 ? static_cast<double>(w.size(0)) : 1;
          const bool linear = item.key().ends_with("weight");  // [out, in]
          const double fan_in = volume * static_cast<double>(w.size(linear ? 1 : -2)),
                       fan_out = volume * static_cast<double>(w.size(linear ? 0 : -1));
          const double expected = how == "d2l"      ? 0.01
                                  : how == "xavier" ? std::sqrt(2 / (fan_in + fan_out))
                                                    : std::sqrt(2 / fan_in);
          EXPECT_NEAR(w.std().item<double>() / expected, 1, 0.05);
        }
      }
    }
}

TEST(Initialise, LeavesTheAmplitudesOfWavesAndDrawsChannelwiseKernelsByTheirVolume) {
  const auto net = make("minkresnet14", {.input = {3}, .dimension = 2, .classes = 4, .settings = {{"field", "1"}}});
  const at::Tensor coef = net->named_parameters()["field_network.0.coef"], before = coef.clone();
  initialise(*net, "kaiming");
  EXPECT_TRUE(at::equal(coef, before));
  sparse::nn::ChannelwiseConvolution layer(
      sparse::nn::ConvolutionOptions{.in_channels = 500, .kernel = {}, .bias = true});
  initialise(*layer, "xavier");
  EXPECT_NEAR(layer->kernel.std().item<double>(), std::sqrt(2.0 / (27 + 27)), 0.01);
  EXPECT_EQ(layer->bias.abs().max().item<double>(), 0);
}

TEST(StateDict, LoadsIntoANetworkAsItWasTaken) {
  const auto from = make("resnet18", small("resnet18")), to = make("resnet18", small("resnet18"));
  from->forward(at::randn({4, 3, 16, 16}));  // moves the running statistics
  to->to(at::kDouble);
  load_state_dict(*to, state_dict(*from));
  for (const auto& [name, tensor] : state_dict(*to)) {
    EXPECT_TRUE(at::equal(tensor.to(state_dict(*from).at(name).scalar_type()), state_dict(*from).at(name))) << name;
    EXPECT_FALSE(tensor.requires_grad());
  }
  EXPECT_EQ(to->parameters()[0].scalar_type(), at::kDouble);
  EXPECT_EQ(state_dict(*to).at("bn1.num_batches_tracked").item<int64_t>(), 1);
}

/// MinkowskiEngine keeps [1, Cin, Cout] where a layer of one offset has a stride.
TEST(StateDict, TakesKernelsOfOneOffsetWithAndWithoutIt) {
  const Options options{.input = {3}, .dimension = 2, .classes = 4};
  const auto from = make("minkresnet14", options), to = make("minkresnet14", options);
  StateDict state = state_dict(*from);
  at::Tensor& kernel = state.at("layer2.0.downsample.0.kernel");
  kernel = kernel.unsqueeze(0);
  load_state_dict(*to, state);
  EXPECT_TRUE(at::equal(state_dict(*to).at("layer2.0.downsample.0.kernel"), kernel[0]));
  struct Net : torch::nn::Module {
    Net() { kernel = register_parameter("kernel", at::zeros({1, 2, 3})); }
    at::Tensor kernel;
  } net;
  load_state_dict(net, {{"kernel", at::ones({2, 3})}});
  EXPECT_TRUE(at::equal(net.kernel, at::ones({1, 2, 3})));
  EXPECT_THAT(
      [&] {
        load_state_dict(net, {{"kernel", at::ones({3, 2})}});
      },
      ThrowsMessage<Error>(HasSubstr("of another shape kernel [3, 2] where the network has [1, 2, 3]")));
  state.at("final.linear.weight").unsqueeze_(0);  // of kernels alone
  EXPECT_THROW(load_state_dict(*to, state), Error);
}

TEST(StateDict, OfOldFilesMayLackTheNumberOfBatches) {
  const auto net = make("resnet18", small("resnet18"));
  StateDict old = state_dict(*net);
  EXPECT_GT(std::erase_if(old, [](const auto& item) { return item.first.ends_with("num_batches_tracked"); }), 0u);
  EXPECT_NO_THROW(load_state_dict(*net, old));
}

TEST(StateDict, ThatDoesNotFitIsListedAndChangesNothing) {
  const auto net = make("mlp", {.input = {4}, .classes = 3, .settings = {{"hidden", "5"}}});
  const StateDict before = state_dict(*net);
  StateDict wrong{{"layers.0.weight", at::ones({5, 4})},
                  {"layers.3.weight", at::ones({7, 5})},
                  {"fc.bias", at::ones({3})},
                  {"layers.3.bias", at::ones({3})}};
  const auto first = before.at("layers.0.weight").clone();
  EXPECT_THAT(
      [&] { load_state_dict(*net, wrong); },
      ThrowsMessage<Error>(HasSubstr("missing layers.0.bias; unexpected fc.bias; of another shape layers.3.weight "
                                     "[7, 5] where the network has [3, 5]")));
  EXPECT_TRUE(at::equal(before.at("layers.0.weight"), first));
  EXPECT_THAT(
      [&] { load_state_dict(*make("resnet18", small("resnet18")), {}); },
      ThrowsMessage<Error>(HasSubstr("bn1.weight, conv1.weight, fc.bias, fc.weight, layer1.0.bn1.bias and 94 more")));
}

}  // namespace
}  // namespace lockstep::models
