// SPDX-License-Identifier: Apache-2.0
// A whole U-net against results of the engine that its users come from. tests/golden/minkunet14a.pt holds coordinates,
// features and labels of a batch and what MinkowskiEngine 0.5.4 made of them, in training, with weights that follow a
// formula (below).
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <iterator>

#include "lockstep/sparse/nn/convolution.h"
#include "lockstep/sparse/nn/norm.h"

namespace lockstep::sparse {
namespace {

nn::ConvolutionOptions options(int64_t in, int64_t out, int64_t size, int64_t stride = 1, bool bias = false) {
  return {in, out, {.kernel_size = {size}, .stride = {stride}}, bias};
}

SparseTensor relu(const SparseTensor& x) {
  return x.with_features(x.features().relu());
}

struct Block : torch::nn::Module {
  Block(int64_t in, int64_t out) : conv1(options(in, out, 3)), norm1(out), conv2(options(out, out, 3)), norm2(out) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    if (in == out) return;
    shortcut = nn::Convolution(options(in, out, 1));
    shortcut_norm = nn::BatchNorm(out);
    downsample = register_module("downsample", std::make_shared<torch::nn::Module>());
    downsample->register_module("0", shortcut);
    downsample->register_module("1", shortcut_norm);
  }
  SparseTensor forward(const SparseTensor& x) {
    const SparseTensor y = norm2(conv2(relu(norm1(conv1(x)))));
    return relu(y + (shortcut ? shortcut_norm(shortcut(x)) : x));
  }
  nn::Convolution conv1;
  nn::BatchNorm norm1;
  nn::Convolution conv2;
  nn::BatchNorm norm2;
  nn::Convolution shortcut{nullptr};
  nn::BatchNorm shortcut_norm{nullptr};
  std::shared_ptr<torch::nn::Module> downsample;
};

struct MinkUNet14A : torch::nn::Module {
  static constexpr int64_t planes[] = {32, 64, 128, 256, 128, 128, 96, 96};

  MinkUNet14A(int64_t in, int64_t classes) {
    int64_t width = 32;
    first = add("conv0p1s1", nn::Convolution(options(in, width, 5)));
    norms.push_back(add("bn0", nn::BatchNorm(width)));
    std::vector<int64_t> skips = {32, 32, 64, 128};
    for (int64_t level = 0; level < 4; ++level) {
      const std::string n = std::to_string(level + 1);
      down.push_back(
          add("conv" + n + "p" + std::to_string(1 << level) + "s2", nn::Convolution(options(width, width, 2, 2))));
      norms.push_back(add("bn" + n, nn::BatchNorm(width)));
      add_block("block" + n, width, planes[level]);
      width = planes[level];
    }
    for (int64_t level = 0; level < 4; ++level) {
      const std::string n = std::to_string(level + 4);
      const int64_t out = planes[level + 4];
      up.push_back(add("convtr" + n + "p" + std::to_string(16 >> level) + "s2",
                       nn::ConvolutionTranspose(options(width, out, 2, 2))));
      norms.push_back(add("bntr" + n, nn::BatchNorm(out)));
      add_block("block" + std::to_string(level + 5), out + skips[3 - level], out);
      width = out;
    }
    last = add("final", nn::Convolution(options(width, classes, 1, 1, true)));
  }
  SparseTensor forward(const SparseTensor& x) {
    std::vector<SparseTensor> skips;
    SparseTensor y = relu(norms[0](first(x)));
    for (int64_t level = 0; level < 4; ++level) {
      skips.push_back(y);
      y = blocks[level]->forward(relu(norms[level + 1](down[level](y))));
    }
    for (int64_t level = 0; level < 4; ++level)
      y = blocks[level + 4]->forward(cat({relu(norms[level + 5](up[level](y))), skips[3 - level]}));
    return last(y);
  }

 private:
  void add_block(const std::string& name, int64_t in, int64_t out) {
    blocks.push_back(std::make_shared<Block>(in, out));
    register_module(name, std::make_shared<torch::nn::Module>())->register_module("0", blocks.back());
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
  std::vector<std::shared_ptr<Block>> blocks;
};

void fill_by_formula(MinkUNet14A& net) {
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
  MinkUNet14A net{3, 20};
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

}  // namespace
}  // namespace lockstep::sparse
