// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/mink_fcnn.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/models/clouds/residual_stage.h"

namespace lockstep::models {
namespace {

namespace nn = sparse::nn;
using sparse::SparseTensor;
using sparse::TensorField;

constexpr Activation kActivation = Activation::leaky_relu;
constexpr int64_t kHidden = 512, kHidden2 = 256;

}  // namespace

/// A linear layer `0` without bias, a batch norm `1` and an activation, of each row.
struct MinkFcnnImpl::Perceptron : torch::nn::Cloneable<Perceptron> {
  Perceptron(int64_t in, int64_t out) : in(in), out(out) { reset(); }
  void reset() override {
    linear = register_module("0", nn::Linear(in, out, /*bias=*/false));
    norm = register_module("1", nn::BatchNorm(out));
  }
  at::Tensor forward(const at::Tensor& features) {
    return activate(norm->on_features(linear->on_features(features)), kActivation);
  }
  int64_t in, out;
  nn::Linear linear{nullptr};
  nn::BatchNorm norm{nullptr};
};

/// Three stacks of one convolution each.
struct MinkFcnnImpl::Pyramid : torch::nn::Cloneable<Pyramid> {
  Pyramid(int64_t in, int64_t out, int64_t dimension) : in(in), out(out), dimension(dimension) { reset(); }
  void reset() override {
    stacks.clear();
    int64_t channels = in;
    for (const int64_t share : {4, 2, 1}) {
      const StackedConvolution layer{.out_channels = out / share, .stride = 2};
      stacks.push_back(register_module(std::to_string(stacks.size()),
                                       ConvolutionStack(channels, std::vector{layer}, kActivation, dimension)));
      channels = layer.out_channels;
    }
  }
  SparseTensor forward(SparseTensor x) {
    for (ConvolutionStack& stack : stacks) x = stack(x);
    return x;
  }
  int64_t in, out, dimension;
  std::vector<ConvolutionStack> stacks;
};

/// Two perceptrons, `0` and `2`, with dropout between them, and a linear layer `3`.
struct MinkFcnnImpl::Head : torch::nn::Cloneable<Head> {
  Head(int64_t in, int64_t out) : in(in), out(out) { reset(); }
  void reset() override {
    first = register_module("0", std::make_shared<Perceptron>(in, kHidden));
    dropout = register_module("1", nn::Dropout());
    second = register_module("2", std::make_shared<Perceptron>(kHidden, kHidden2));
    last = register_module("3", nn::Linear(kHidden2, out));
  }
  at::Tensor forward(const at::Tensor& features) {
    return last->on_features(second->forward(dropout->on_features(first->forward(features))));
  }
  int64_t in, out;
  std::shared_ptr<Perceptron> first, second;
  nn::Dropout dropout{nullptr};
  nn::Linear last{nullptr};
};

MinkFcnnImpl::MinkFcnnImpl(const MinkFcnnOptions& options) : options(options) {
  const int64_t least = std::min({options.in_channels, options.out_channels, std::ranges::min(options.channels)});
  require(least > 0, "MinkFCNN", "a layer has ", least, " channels, expected at least 1");
  require(options.embedding_channels >= 4, "MinkFCNN", "the embedding has ", options.embedding_channels,
          " channels, expected at least 4");
  MinkFcnnImpl::reset();
}

void MinkFcnnImpl::reset() {
  levels_.clear();
  const auto& channels = options.channels;
  points_ = register_module("mlp1", std::make_shared<Perceptron>(options.in_channels, channels[0]));
  int64_t joined = 0;
  for (size_t level = 1; level < channels.size(); ++level) {
    const StackedConvolution layer{.out_channels = channels[level], .stride = level == 1 ? 1 : 2};
    levels_.push_back(
        register_module("conv" + std::to_string(level),
                        ConvolutionStack(channels[level - 1], std::vector{layer}, kActivation, options.dimension)));
    joined += channels[level];
  }
  embedding_ =
      register_module("conv5", std::make_shared<Pyramid>(joined, options.embedding_channels, options.dimension));
  pool_ = register_module(
      "pool", nn::MaxPooling(nn::KernelOptions{.dimension = options.dimension, .kernel_size = {3}, .stride = {2}}));
  final_ = register_module("final", std::make_shared<Head>(2 * options.embedding_channels, options.out_channels));
  initialise_as_minkowski(*this);
}

std::vector<Stage> MinkFcnnImpl::stages() {
  std::vector<Stage> stages;
  stages.emplace_back("mlp1", [this](Bundle& x) {
    const auto& field = x.get<TensorField>();
    const TensorField points = field.with_features(points_->forward(field.features()));
    const SparseTensor voxels = points.sparse();
    x.put("points", points);
    x.put("voxels", voxels);
    x.put(voxels);
  });
  const auto seen = [](size_t level) { return "seen" + std::to_string(level); };
  for (size_t l = 0; l < levels_.size(); ++l)
    stages.emplace_back("conv" + std::to_string(l + 1), [this, l, seen](Bundle& x) {
      x.put(pool_(levels_[l](x.get<SparseTensor>())));
      x.put(seen(l), x.get<TensorField>("points").slice(x.get<SparseTensor>()).features());
    });
  stages.emplace_back("conv5", [this, seen](Bundle& x) {
    std::vector<at::Tensor> all;
    for (size_t l = 0; l < levels_.size(); ++l) all.push_back(x.take<at::Tensor>(seen(l)));
    const auto points = x.take<TensorField>("points");
    const auto voxels = x.take<SparseTensor>("voxels");
    // As points.sparse() would do it, at the coordinates, and so with the maps, that there are.
    x.put(embedding_->forward(
        voxels.with_features(sparse::pool_pairs(at::cat(all, 1), sparse::Pooling::average, at::arange(points.size()),
                                                voxels.inverse_mapping(), voxels.size()))));
  });
  stages.push_back(Stage::of<SparseTensor>("final", [this](const SparseTensor& x) {
    return final_->forward(at::cat(
        {global_pool(x, sparse::Pooling::max).features(), global_pool(x, sparse::Pooling::average).features()}, 1));
  }));
  return stages;
}

at::Tensor MinkFcnnImpl::forward(const TensorField& x) {
  return fold<at::Tensor>(stages(), x);
}

at::Tensor MinkFcnnImpl::forward(const SparseTensor& x) {
  return forward(points_of(x));
}

}  // namespace lockstep::models
