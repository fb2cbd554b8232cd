// SPDX-License-Identifier: Apache-2.0
#include "parallel/networks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <stdexcept>

namespace lockstep::test {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

at::Generator generator(int64_t number) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(number));
}

struct LeNet : nn::Cloneable<LeNet> {
  LeNet() { reset(); }
  void reset() override {
    conv1 = register_module("conv1", nn::Conv2d(1, 6, 5));
    conv2 = register_module("conv2", nn::Conv2d(6, 16, 5));
    fc1 = register_module("fc1", nn::Linear(256, 120));
    fc2 = register_module("fc2", nn::Linear(120, 10));
  }
  Tensor forward(Tensor x) {
    x = torch::avg_pool2d(torch::relu(conv1(x)), 2);
    x = torch::avg_pool2d(torch::relu(conv2(x)), 2);
    return fc2(torch::relu(fc1(x.flatten(1))));
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};
};

struct BasicBlock : nn::Cloneable<BasicBlock> {
  BasicBlock(int64_t in, int64_t out, int64_t stride) : in(in), out(out), stride(stride) { reset(); }
  void reset() override {
    const auto conv = [](int64_t from, int64_t to, int64_t size, int64_t step) {
      return nn::Conv2d(nn::Conv2dOptions(from, to, size).stride(step).padding(size / 2).bias(false));
    };
    conv1 = register_module("conv1", conv(in, out, 3, stride));
    bn1 = register_module("bn1", nn::BatchNorm2d(out));
    conv2 = register_module("conv2", conv(out, out, 3, 1));
    bn2 = register_module("bn2", nn::BatchNorm2d(out));
    if (stride != 1 || in != out)
      downsample = register_module("downsample", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  Tensor forward(const Tensor& x) {
    const auto y = bn2(conv2(torch::relu(bn1(conv1(x)))));
    return torch::relu(y + (downsample.is_empty() ? x : downsample->forward(x)));
  }
  int64_t in, out, stride;
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  nn::Sequential downsample{nullptr};
};

// ResNet-18 with an eighth of the channels.
struct ResNet18 : nn::Cloneable<ResNet18> {
  ResNet18() { reset(); }
  void reset() override {
    layers = register_module("layers", nn::Sequential());
    layers->push_back(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)));
    layers->push_back(nn::BatchNorm2d(8));
    layers->push_back(nn::ReLU());
    int64_t in = 8;
    for (const int64_t out : {8, 16, 32, 64})
      for (int block = 0; block < 2; ++block) {
        layers->push_back(BasicBlock(in, out, block == 0 && out > 8 ? 2 : 1));
        in = out;
      }
    fc = register_module("fc", nn::Linear(64, 10));
  }
  Tensor forward(const Tensor& x) { return fc(layers->forward(x).mean({2, 3})); }
  nn::Sequential layers{nullptr};
  nn::Linear fc{nullptr};
};

template <class Network>
class Images : public Task {
 public:
  Images(int64_t channels, int64_t size, int64_t examples) : sizes_{examples, channels, size, size} {}
  std::shared_ptr<nn::Module> network() const override { return std::make_shared<Network>(); }
  Tensor loss(nn::Module& network, const Tensor& inputs, const Tensor& targets) const override {
    return nn::functional::cross_entropy(network.as<Network>()->forward(inputs), targets);
  }
  std::pair<Tensor, Tensor> batch(int64_t number) const override {
    return {at::randn(sizes_, generator(number), at::TensorOptions()),
            at::randint(10, {sizes_[0]}, generator(number + 1000), at::TensorOptions(at::kLong))};
  }

 private:
  std::vector<int64_t> sizes_;
};

constexpr int64_t kTokens = 50, kLength = 12;

struct Lstm : nn::Cloneable<Lstm> {
  Lstm() { reset(); }
  void reset() override {
    embedding = register_module("embedding", nn::Embedding(kTokens, 24));
    lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(24, 32).num_layers(2).dropout(0.3).batch_first(true)));
    dropout = register_module("dropout", nn::Dropout(0.2));
    out = register_module("out", nn::Linear(32, kTokens));
  }
  Tensor forward(const Tensor& tokens) { return out(dropout(std::get<0>(lstm(embedding(tokens))))); }
  nn::Embedding embedding{nullptr};
  nn::LSTM lstm{nullptr};
  nn::Dropout dropout{nullptr};
  nn::Linear out{nullptr};
};

struct Transformer : nn::Cloneable<Transformer> {
  Transformer() { reset(); }
  void reset() override {
    embedding = register_module("embedding", nn::Embedding(kTokens, 32));
    encoder = register_module(
        "encoder",
        nn::TransformerEncoder(
            nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64).dropout(0.1)),
            2));
  }
  Tensor forward(const Tensor& tokens) {
    return torch::matmul(encoder(embedding(tokens).transpose(0, 1)), embedding->weight.t()).transpose(0, 1);
  }
  nn::Embedding embedding{nullptr};
  nn::TransformerEncoder encoder{nullptr};
};

template <class Network>
class Text : public Task {
 public:
  std::shared_ptr<nn::Module> network() const override { return std::make_shared<Network>(); }
  Tensor loss(nn::Module& network, const Tensor& inputs, const Tensor& targets) const override {
    const auto logits = network.as<Network>()->forward(inputs);
    return nn::functional::cross_entropy(logits.reshape({-1, kTokens}), targets.flatten());
  }
  std::pair<Tensor, Tensor> batch(int64_t number) const override {
    const auto tokens = at::randint(kTokens, {19, kLength + 1}, generator(number), at::TensorOptions(at::kLong));
    return {tokens.slice(1, 0, kLength), tokens.slice(1, 1)};
  }
};

}  // namespace

std::unique_ptr<Task> make_task(const std::string& name) {
  if (name == "lenet") return std::make_unique<Images<LeNet>>(1, 28, 29);
  if (name == "resnet18") return std::make_unique<Images<ResNet18>>(3, 16, 21);
  if (name == "lstm") return std::make_unique<Text<Lstm>>();
  if (name == "transformer") return std::make_unique<Text<Transformer>>();
  throw std::invalid_argument("unknown task '" + name + "'");
}

}  // namespace lockstep::test
