// SPDX-License-Identifier: Apache-2.0
// A whole U-net against results of the engine that its users come from. tests/golden/minkunet14a.pt holds coordinates,
// features and labels of a batch and what MinkowskiEngine 0.5.4 made of them, in training, with weights that follow a
// formula (below).
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/utils.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/models/clouds/minkunet.h"
#include "lockstep/models/registry.h"

namespace lockstep::models {
namespace {

using sparse::SparseTensor;

void fill_by_formula(MinkUNetImpl& net) {
  const at::NoGradGuard no_grad;
  int64_t j = 0;
  for (auto& parameter : net.named_parameters()) {
    at::Tensor& value = parameter.value();
    const at::Tensor i = at::arange(value.numel(), at::kDouble);
    const std::string& name = parameter.key();
    at::Tensor filled;
    if (name.ends_with("bias")) {
      filled = 0.1 * at::cos(0.3 * i + j);
    } else if (name.ends_with(".bn.weight")) {
      filled = 1 + 0.1 * at::sin(0.7 * i + j);
    } else {
      const int64_t fan = value.dim() == 3 ? value.size(0) * value.size(1) : value.size(0);
      filled = std::sqrt(2.0) * std::sqrt(2.0 / static_cast<double>(fan)) * at::sin(0.37 * (i + 1) * (1 + j % 7) + j);
    }
    value.copy_(filled.reshape(value.sizes()));
    ++j;
  }
}

std::map<std::string, at::Tensor> load_golden() {
  std::ifstream file(LOCKSTEP_GOLDEN "/minkunet14a.pt", std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  std::map<std::string, at::Tensor> golden;
  for (const auto& entry : torch::jit::pickle_load(bytes).toGenericDict())
    golden.emplace(entry.key().toStringRef(), entry.value().toTensor());
  return golden;
}

struct Pass {
  at::Tensor logits, loss;
  MinkUNet net{MinkUNetOptions::variant("14A", 3, 20)};
};

void run(Pass& pass, const std::map<std::string, at::Tensor>& golden, at::ScalarType type = at::kFloat) {
  fill_by_formula(*pass.net);
  pass.net->to(type);
  const SparseTensor x(golden.at("features").to(type), golden.at("coordinates"));
  pass.logits = pass.net->forward(x).features();
  pass.loss = at::cross_entropy_loss(pass.logits, golden.at("labels"));
  pass.loss.backward();
}

TEST(MinkUNet14A, GivesMinkowskiEnginesLogitsLossAndStatistics) {
  const auto golden = load_golden();
  ASSERT_EQ(golden.at("coordinates").size(0), 2192);
  Pass pass;
  run(pass, golden);
  const at::Tensor& expected = golden.at("logits");
  EXPECT_LT((pass.logits - expected).abs().max().item<double>(), 1e-3 * expected.abs().max().item<double>());
  EXPECT_NEAR(pass.loss.item<double>(), golden.at("loss").item<double>(), 1e-4);
  for (const auto& buffer : pass.net->named_buffers()) {
    const auto wanted = golden.find("buffer/" + buffer.key());
    if (wanted == golden.end()) continue;
    EXPECT_TRUE(at::allclose(buffer.value(), wanted->second, 1e-3, 1e-4)) << buffer.key();
  }
}

/// Batch norms over the few points of the coarsest level make gradients there ill-conditioned: features moved by 1e-7
/// of themselves change norms by some percent in float32, which the golden ones were made in. They are compared with
/// float64's, closely near the output and coarsely further down.
TEST(MinkUNet14A, GivesMinkowskiEnginesGradients) {
  const auto golden = load_golden();
  Pass pass;
  run(pass, golden, at::kDouble);
  EXPECT_NEAR(pass.loss.item<double>(), golden.at("loss").item<double>(), 1e-6);
  int64_t close = 0, coarse = 0;
  for (const auto& parameter : pass.net->named_parameters()) {
    const std::string& name = parameter.key();
    const auto found = golden.find("grad_norm/" + name);
    ASSERT_NE(found, golden.end()) << name;
    const double wanted = found->second.item<double>(), got = parameter.value().grad().norm().item<double>();
    const bool near = name.starts_with("final") || name.starts_with("block8") || name.starts_with("convtr7");
    EXPECT_NEAR(got, wanted, (near ? 4e-3 : 0.8) * wanted) << name;
    ++(near ? close : coarse);
  }
  EXPECT_EQ(close, 12);
  EXPECT_GT(coarse, 70);
}

TEST(MinkUNet14A, GivesTheSameBitsForAnyNumberOfThreads) {
  const auto golden = load_golden();
  Pass first;
  at::set_num_threads(1);
  run(first, golden);
  for (const int threads : {2, 4}) {
    at::set_num_threads(threads);
    Pass pass;
    run(pass, golden);
    EXPECT_TRUE(at::equal(pass.logits, first.logits));
    for (const auto& parameter : pass.net->named_parameters())
      EXPECT_TRUE(at::equal(parameter.value().grad(), first.net->named_parameters()[parameter.key()].grad()))
          << parameter.key() << " with " << threads << " threads";
  }
  at::set_num_threads(1);
}

/// "NAME [SIZES]" of each parameter and buffer.
std::set<std::string> names_and_shapes(const torch::nn::Module& net) {
  std::set<std::string> lines;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      std::ostringstream line;
      line << item.key() << " " << item.value().sizes();
      lines.insert(line.str());
    }
  };
  add(net.named_parameters());
  add(net.named_buffers());
  return lines;
}

std::set<std::string> lines_of(const std::string& file) {
  std::set<std::string> lines;
  std::ifstream stream(LOCKSTEP_GOLDEN "/" + file);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

TEST(MinkUNet, HasMinkowskiEnginesNamesAndShapes) {
  const auto of_14a = lines_of("minkunet14a-state-dict.txt"), of_34c = lines_of("minkunet34c-state-dict.txt");
  ASSERT_EQ(of_14a.size(), 194);
  ASSERT_EQ(of_34c.size(), 374);
  EXPECT_EQ(names_and_shapes(*MinkUNet(MinkUNetOptions::variant("14A", 3, 20))), of_14a);
  EXPECT_EQ(names_and_shapes(*MinkUNet(MinkUNetOptions::variant("34C", 3, 20))), of_34c);
}

/// Distinct coordinates of two batch entries and random features.
SparseTensor some_points(int64_t dimension, int64_t channels) {
  torch::manual_seed(7);
  const at::Tensor entries = at::randint(0, 2, {60, 1}), axes = at::randint(-9, 9, {60, dimension});
  const at::Tensor coordinates = at::cat({entries, axes}, 1).to(at::kInt);
  return {at::randn({60, channels}), coordinates};
}

TEST(MinkUNet, VariantsDifferInBlocksAndPlanes) {
  ASSERT_EQ(minkunet_variants().size(), 15);
  const auto widest = MinkUNetOptions::variant("18d", 2, 5), deepest = MinkUNetOptions::variant("101", 2, 5);
  EXPECT_EQ(widest.planes[7], 384);
  EXPECT_EQ(widest.layers[3], 2);
  EXPECT_EQ(deepest.layers[3], 23);
  EXPECT_EQ(deepest.block, sparse::nn::BlockKind::bottleneck);
  // Bottlenecks widen what they give by four, which the ways across and the last layer must know.
  const SparseTensor x = some_points(2, 2);
  MinkUNet net(MinkUNetOptions::variant("50", 2, 5, 2));
  EXPECT_EQ(net->named_parameters()["convtr5p8s2.kernel"].sizes(), at::IntArrayRef({4, 512, 128}));
  EXPECT_EQ(net->named_parameters()["final.kernel"].sizes(), at::IntArrayRef({384, 5}));
  net->eval();
  const at::NoGradGuard no_grad;
  const SparseTensor y = net(x);
  EXPECT_EQ(y.key(), x.key());
  EXPECT_TRUE(at::isfinite(y.features()).all().item<bool>());
}

TEST(MinkUNet, WorksInAnyDimensionAndWithoutPoints) {
  for (const int64_t dimension : {1, 2}) {
    MinkUNet net(MinkUNetOptions::variant("14b", 3, 4, dimension));
    const SparseTensor x = some_points(dimension, 3);
    EXPECT_EQ(net(x).features().sizes(), at::IntArrayRef({x.size(), 4})) << dimension;
    const SparseTensor none(at::empty({0, 3}), at::empty({0, 1 + dimension}, at::kInt));
    const SparseTensor y = net(none);
    EXPECT_EQ(y.features().sizes(), at::IntArrayRef({0, 4}));
    y.features().sum().backward();
  }
}

TEST(MinkUNet, ACopyComputesTheSameAndStandsOnItsOwn) {
  MinkUNet net(MinkUNetOptions::variant("14A", 3, 4, 2));
  const auto copy = std::dynamic_pointer_cast<MinkUNetImpl>(net->clone());
  const SparseTensor x = some_points(2, 3);
  EXPECT_TRUE(at::equal(copy->forward(x).features(), net(x).features()));
  const at::NoGradGuard no_grad;
  copy->parameters()[0].zero_();
  EXPECT_GT(net->parameters()[0].abs().sum().item<double>(), 0);
}

/// Kernels have the variance 2 / (K Cout), as in MinkowskiEngine's model files, but [Cin, Cout] has 2 / Cin, which its
/// initialiser takes for the outputs; those of transposed layers stay uniform, so bounded.
TEST(MinkUNet, BeginsAsMinkowskiEnginesDoes) {
  torch::manual_seed(3);
  const MinkUNet net(MinkUNetOptions::variant("14A", 3, 20));
  const auto parameters = net->named_parameters();
  const double down = parameters["block4.0.conv2.kernel"].std().item<double>();
  EXPECT_NEAR(down, std::sqrt(2.0 / (27 * 256)), 0.01 * down);
  const double shortcut = parameters["block4.0.downsample.0.kernel"].std().item<double>();  // [128, 256]
  EXPECT_NEAR(shortcut, std::sqrt(2.0 / 128), 0.02 * shortcut);
  const at::Tensor& up = parameters["convtr4p16s2.kernel"];
  EXPECT_LE(up.abs().max().item<double>(), 1 / std::sqrt(8.0 * 128));
  EXPECT_TRUE(at::equal(parameters["bn0.bn.weight"], at::ones({32})));
}

TEST(MinkUNet, IsAClassifierByName) {
  const SparseTensor x = some_points(2, 3);
  const auto net = make("minkunet14a", {.input = {3}, .dimension = 2, .classes = 6});
  EXPECT_EQ(net->forward(x).sizes(), at::IntArrayRef({x.size(), 6}));
  EXPECT_TRUE(net->named_parameters().contains("block1.0.conv1.kernel"));
  EXPECT_THAT(
      [&] {
        net->forward(at::zeros({2, 3}));
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("got a tensor, which")));
  EXPECT_THAT(
      [] {
        make("minkunet14a", {.input = {3, 8, 8}});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("expected clouds of points")));
  EXPECT_THAT([&] { make("mlp", {.input = {3}, .classes = 6})->forward(x); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("got a sparse tensor, which")));
}

TEST(MinkUNet, SaysWhichVariantsThereAre) {
  try {
    MinkUNetOptions::variant("34D", 3, 20);
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("there is no variant '34D', expected 14, 14A"));
  }
}

}  // namespace
}  // namespace lockstep::models
