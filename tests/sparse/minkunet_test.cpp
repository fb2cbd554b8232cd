// SPDX-License-Identifier: Apache-2.0
// A whole U-net against results of the engine that its users come from. tests/golden/minkunet14a.pt holds coordinates,
// features and labels of a batch and what MinkowskiEngine 0.5.4 made of them, in training, with weights that follow a
// formula (below).
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "lockstep/sparse/nn/blocks.h"

namespace lockstep::sparse {
namespace {

nn::ConvolutionOptions options(int64_t in, int64_t out, int64_t size, int64_t stride = 1, bool bias = false) {
  return {in, out, {.kernel_size = {size}, .stride = {stride}}, bias};
}

SparseTensor relu(const SparseTensor& x) {
  return x.with_features(x.features().relu());
}

/// Blocks of each level, down and up, and their channels.
struct Shape {
  std::array<int64_t, 8> layers, planes;
};
constexpr Shape k14A = {{1, 1, 1, 1, 1, 1, 1, 1}, {32, 64, 128, 256, 128, 128, 96, 96}};
constexpr Shape k34C = {{2, 3, 4, 6, 2, 2, 2, 2}, {32, 64, 128, 256, 256, 128, 96, 96}};

struct MinkUNet : torch::nn::Module {
  MinkUNet(const Shape& shape, int64_t in, int64_t classes) {
    int64_t width = 32;
    first = add("conv0p1s1", nn::Convolution(options(in, width, 5)));
    norms.push_back(add("bn0", nn::BatchNorm(width)));
    std::vector<int64_t> skips = {32, 32, 64, 128};
    for (int64_t level = 0; level < 4; ++level) {
      const std::string n = std::to_string(level + 1);
      down.push_back(
          add("conv" + n + "p" + std::to_string(1 << level) + "s2", nn::Convolution(options(width, width, 2, 2))));
      norms.push_back(add("bn" + n, nn::BatchNorm(width)));
      add_blocks(level, width, shape);
      width = shape.planes[level];
    }
    for (int64_t level = 0; level < 4; ++level) {
      const std::string n = std::to_string(level + 4);
      const int64_t out = shape.planes[level + 4];
      up.push_back(add("convtr" + n + "p" + std::to_string(16 >> level) + "s2",
                       nn::ConvolutionTranspose(options(width, out, 2, 2))));
      norms.push_back(add("bntr" + n, nn::BatchNorm(out)));
      add_blocks(level + 4, out + skips[3 - level], shape);
      width = out;
    }
    last = add("final", nn::Convolution(options(width, classes, 1, 1, true)));
  }
  SparseTensor forward(const SparseTensor& x) {
    std::vector<SparseTensor> skips;
    SparseTensor y = relu(norms[0](first(x)));
    for (int64_t level = 0; level < 4; ++level) {
      skips.push_back(y);
      y = run_blocks(level, relu(norms[level + 1](down[level](y))));
    }
    for (int64_t level = 0; level < 4; ++level)
      y = run_blocks(level + 4, cat({relu(norms[level + 5](up[level](y))), skips[3 - level]}));
    return last(y);
  }

 private:
  void add_blocks(int64_t level, int64_t in, const Shape& shape) {
    const auto group = register_module("block" + std::to_string(level + 1), std::make_shared<torch::nn::Module>());
    std::vector<nn::BasicBlock> row;
    for (int64_t i = 0; i < shape.layers[level]; ++i) {
      row.emplace_back(nn::BlockOptions{.in_channels = in, .planes = shape.planes[level]});
      group->register_module(std::to_string(i), row.back());
      in = shape.planes[level];
    }
    blocks.push_back(std::move(row));
  }
  SparseTensor run_blocks(int64_t level, SparseTensor x) {
    for (nn::BasicBlock& block : blocks[level]) x = block(x);
    return x;
  }
  template <class Holder>
  Holder add(const std::string& name, Holder module) {
    register_module(name, module);
    return module;
  }
  nn::Convolution first{nullptr}, last{nullptr};
  std::vector<nn::Convolution> down;
  std::vector<nn::ConvolutionTranspose> up;
  std::vector<nn::BatchNorm> norms;
  std::vector<std::vector<nn::BasicBlock>> blocks;
};

void fill_by_formula(MinkUNet& net) {
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
  MinkUNet net{k14A, 3, 20};
};

void run(Pass& pass, const std::map<std::string, at::Tensor>& golden, at::ScalarType type = at::kFloat) {
  fill_by_formula(pass.net);
  pass.net.to(type);
  const SparseTensor x(golden.at("features").to(type), golden.at("coordinates"));
  pass.logits = pass.net.forward(x).features();
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
  for (const auto& buffer : pass.net.named_buffers()) {
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
  for (const auto& parameter : pass.net.named_parameters()) {
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
    for (const auto& parameter : pass.net.named_parameters())
      EXPECT_TRUE(at::equal(parameter.value().grad(), first.net.named_parameters()[parameter.key()].grad()))
          << parameter.key() << " with " << threads << " threads";
  }
  at::set_num_threads(1);
}

TEST(MinkUNet34C, HasMinkowskiEnginesNamesAndShapes) {
  std::set<std::string> expected, got;
  std::ifstream file(LOCKSTEP_GOLDEN "/minkunet34c-state-dict.txt");
  for (std::string line; std::getline(file, line);) expected.insert(line);
  ASSERT_EQ(expected.size(), 374);
  const MinkUNet net(k34C, 3, 20);
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      std::ostringstream line;
      line << item.key() << " " << item.value().sizes();
      got.insert(line.str());
    }
  };
  add(net.named_parameters());
  add(net.named_buffers());
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace lockstep::sparse
