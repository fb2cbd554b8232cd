// SPDX-License-Identifier: Apache-2.0
// The dense networks against their definitions: names, shapes, numbers of weights, and PyTorch's own forward pass.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/models/images/lenet.h"
#include "lockstep/models/registry.h"
#include "lockstep/models/state_dict.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

// The tensors of a ResNet for 1000 classes of colour images, as He et al. and torchvision define it.
Shapes resnet_shapes(const std::vector<int64_t>& blocks, bool bottleneck) {
  Shapes all;
  const auto conv = [&](const std::string& name, int64_t out, int64_t in, int64_t kernel) {
    all.push_back({name + ".weight", {out, in, kernel, kernel}});
  };
  const auto norm = [&](const std::string& name, int64_t channels) {
    for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"})
      all.push_back({name + part, {channels}});
    all.push_back({name + ".num_batches_tracked", {}});
  };
  conv("conv1", 64, 3, 7);
  norm("bn1", 64);
  int64_t in = 64;
  for (size_t layer = 0; layer < 4; ++layer)
    for (int64_t block = 0; block < blocks[layer]; ++block) {
      const std::string name = text("layer", layer + 1, ".", block);
      const int64_t planes = 64 << layer, out = bottleneck ? 4 * planes : planes;
      const std::vector<std::array<int64_t, 3>> plan =
          bottleneck ? std::vector<std::array<int64_t, 3>>{{planes, in, 1}, {planes, planes, 3}, {out, planes, 1}}
                     : std::vector<std::array<int64_t, 3>>{{planes, in, 3}, {planes, planes, 3}};
      for (size_t i = 0; i < plan.size(); ++i) {
        conv(text(name, ".conv", i + 1), plan[i][0], plan[i][1], plan[i][2]);
        norm(text(name, ".bn", i + 1), plan[i][0]);
      }
      if (block == 0 && (layer > 0 || bottleneck)) {
        conv(name + ".downsample.0", out, in, 1);
        norm(name + ".downsample.1", out);
      }
      in = out;
    }
  all.push_back({"fc.weight", {1000, in}});
  all.push_back({"fc.bias", {1000}});
  return all;
}

Shapes sorted(Shapes shapes) {
  std::ranges::sort(shapes);
  return shapes;
}

Shapes shapes_of(const torch::nn::Module& network) {
  Shapes all;
  for (const auto& [name, tensor] : state_dict(network)) all.push_back({name, tensor.sizes().vec()});
  return all;
}

int64_t weights_of(const torch::nn::Module& network) {
  int64_t count = 0;
  for (const auto& parameter : network.parameters()) count += parameter.numel();
  return count;
}

struct Published {
  const char* name;
  std::vector<int64_t> blocks;
  bool bottleneck;
  int64_t weights;
  size_t tensors;
};

TEST(ResNet, HasTheNamesTheShapesAndTheNumberOfWeightsOfTorchvisions) {
  const Published published[] = {{"resnet18", {2, 2, 2, 2}, false, 11'689'512, 122},
                                 {"resnet34", {3, 4, 6, 3}, false, 21'797'672, 218},
                                 {"resnet50", {3, 4, 6, 3}, true, 25'557'032, 320}};
  for (const Published& one : published) {
    SCOPED_TRACE(one.name);
    const auto net = make(one.name, {.input = {3, 224, 224}, .classes = 1000});
    const Shapes got = shapes_of(*net);
    EXPECT_EQ(got, sorted(resnet_shapes(one.blocks, one.bottleneck)));
    EXPECT_EQ(got.size(), one.tensors);
    EXPECT_EQ(weights_of(*net), one.weights);
    // The order too: optimisers of PyTorch number their states by it.
    std::vector<std::string> order, expected;
    for (const auto& item : net->named_parameters()) order.push_back(item.key());
    for (const auto& [name, shape] : resnet_shapes(one.blocks, one.bottleneck))
      if (name.ends_with(".weight") || name.ends_with(".bias")) expected.push_back(name);
    EXPECT_EQ(order, expected);
  }
}

TEST(ResNet, HasAStemForSmallImages) {
  const auto stem = [](const Options& options) {
    return state_dict(*make("resnet18", options)).at("conv1.weight").sizes().vec();
  };
  EXPECT_EQ(stem({.input = {3, 32, 32}}), (std::vector<int64_t>{64, 3, 3, 3}));
  EXPECT_EQ(stem({.input = {1, 96, 96}}), (std::vector<int64_t>{64, 1, 7, 7}));
  EXPECT_EQ(stem({.input = {3, 32, 32}, .settings = {{"stem", "imagenet"}}}), (std::vector<int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(stem({.input = {3, 224, 224}, .settings = {{"stem", "small"}, {"width", "0.5"}}}),
            (std::vector<int64_t>{32, 3, 3, 3}));
}

TEST(LeNet, HasTheShapesOfTheChapter) {
  const auto net = make("lenet");
  EXPECT_EQ(shapes_of(*net), (Shapes{{"conv1.bias", {20}},
                                     {"conv1.weight", {20, 1, 3, 3}},
                                     {"conv2.bias", {50}},
                                     {"conv2.weight", {50, 20, 5, 5}},
                                     {"fc1.bias", {128}},
                                     {"fc1.weight", {128, 800}},
                                     {"fc2.bias", {10}},
                                     {"fc2.weight", {10, 128}}}));
  EXPECT_EQ(weights_of(*net), 129'068);
}

TEST(LeNet, FromScratchComputesWhatTheModuleDoes) {
  at::manual_seed(3);
  const auto parameters = lenet_parameters();
  ASSERT_EQ(parameters.size(), 8u);
  for (size_t p = 0; p < 8; p += 2) {
    EXPECT_NEAR(parameters[p].std().item<double>(), 0.01, 0.002);
    EXPECT_EQ(parameters[p + 1].abs().sum().item<double>(), 0);
  }
  LeNet net;
  load_state_dict(*net, {{"conv1.weight", parameters[0]},
                         {"conv1.bias", parameters[1]},
                         {"conv2.weight", parameters[2]},
                         {"conv2.bias", parameters[3]},
                         {"fc1.weight", parameters[4].t()},
                         {"fc1.bias", parameters[5]},
                         {"fc2.weight", parameters[6].t()},
                         {"fc2.bias", parameters[7]}});
  const auto x = at::randn({5, 1, 28, 28});
  EXPECT_TRUE(at::allclose(lenet(x, parameters), net->forward(x), 1e-5, 1e-8));
  EXPECT_EQ(lenet(x.slice(0, 0, 0), parameters).sizes(), at::IntArrayRef({0, 10}));
  EXPECT_THAT([&] { lenet(x, {parameters[0]}); },
              ThrowsMessage<Error>(HasSubstr("there are 1 parameters, expected 8")));
}

// Every tensor gets values that follow from its place among the sorted names; twin.py does the same.
void fill(const torch::nn::Module& network) {
  double number = 0;
  for (const auto& [name, tensor] : state_dict(network)) {
    number += 1;
    if (tensor.scalar_type() == at::kLong) continue;
    const auto wave = (at::arange(tensor.numel(), at::kDouble) * 0.011 + number * 0.37).sin().view(tensor.sizes());
    if (name.ends_with("running_var"))
      tensor.copy_(1 + 0.5 * wave);
    else
      tensor.copy_(name.find("bn") != std::string::npos && name.ends_with("weight") ? 1 + 0.1 * wave : 0.1 * wave);
  }
}

std::string output_of(const std::string& command) {
  std::string output;
  std::FILE* pipe = popen(command.c_str(), "r");  // NOLINT(bugprone-command-processor)
  if (pipe == nullptr) return output;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  return pclose(pipe) == 0 ? output : "failed: " + output;
}

struct Described {
  std::string names;
  std::vector<double> numbers;
};

void append(std::vector<double>& numbers, const at::Tensor& values) {
  const auto flat = values.detach().flatten();
  for (int64_t i = 0; i < flat.numel(); ++i) numbers.push_back(flat[i].item<double>());
}

// The names; the logits in training, the running mean of the first norm, and the logits in evaluation.
Described describe(const std::string& model, const Options& options) {
  const auto net = make(model, options);
  net->to(at::kDouble);
  fill(*net);
  std::vector<int64_t> sizes{2};
  sizes.insert(sizes.end(), options.input.begin(), options.input.end());
  const auto x = (at::arange(c10::multiply_integers(sizes), at::kDouble) * 0.05).sin().view(sizes);
  Described out;
  for (const auto& [name, tensor] : state_dict(*net)) out.names += name + " ";
  append(out.numbers, net->forward(x));
  if (const auto state = state_dict(*net); state.contains("bn1.running_mean"))
    append(out.numbers, state.at("bn1.running_mean"));
  net->eval();
  append(out.numbers, net->forward(x));
  return out;
}

Described twin(const std::string& model) {
  std::istringstream lines(output_of(text(LOCKSTEP_TORCH_PYTHON, " ", LOCKSTEP_TWIN_PY, " ", model)));
  Described out;
  std::getline(lines, out.names);
  for (double number = 0; lines >> number;) out.numbers.push_back(number);
  return out;
}

TEST(DenseNetworks, ComputeWhatTheirTwinsInPyTorchDo) {
  if (access(LOCKSTEP_TORCH_PYTHON, X_OK) != 0) GTEST_SKIP() << "no Python beside this libtorch";
  const std::pair<const char*, Options> cases[] = {
      {"lenet", {.input = {1, 28, 28}, .classes = 3}},
      {"resnet18", {.input = {3, 20, 20}, .classes = 3, .settings = {{"width", "0.0625"}}}},
      {"resnet50", {.input = {3, 40, 40}, .classes = 3, .settings = {{"width", "0.0625"}, {"stem", "imagenet"}}}}};
  for (const auto& [model, options] : cases) {
    const Described ours = describe(model, options), theirs = twin(model);
    EXPECT_EQ(ours.names, theirs.names) << model;
    EXPECT_THAT(ours.numbers, testing::Pointwise(testing::DoubleNear(1e-8), theirs.numbers)) << model;
  }
}

}  // namespace
}  // namespace lockstep::models
