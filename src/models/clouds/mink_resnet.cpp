// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/mink_resnet.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/sparse/nn/pooling.h"

namespace lockstep::models {
namespace {

namespace nn = sparse::nn;
using sparse::SparseTensor;
using sparse::TensorField;

constexpr int64_t kStemChannels = 64, kFieldChannels = 32, kFieldChannels2 = 64;
constexpr std::array<int64_t, 4> kPlanes{64, 128, 256, 512};

nn::KernelOptions kernel(const MinkResNetOptions& options, int64_t size, int64_t stride) {
  return {.dimension = options.dimension, .kernel_size = {size}, .stride = {stride}};
}

}  // namespace

/// Layers 0 to 3: a convolution, an instance norm, ReLU and pooling.
struct MinkResNetImpl::Stem : torch::nn::Cloneable<Stem> {
  Stem(const MinkResNetOptions& options, int64_t in) : options(options), in(in) { reset(); }
  void reset() override {
    convolution = register_module(
        "0", nn::Convolution(nn::ConvolutionOptions{in, kStemChannels, kernel(options, /*size=*/3, /*stride=*/2)}));
    norm = register_module("1", nn::InstanceNorm(kStemChannels));
    pool = register_module("3", nn::MaxPooling(kernel(options, /*size=*/2, /*stride=*/2)));
  }
  SparseTensor forward(const SparseTensor& x) {
    const SparseTensor y = norm(convolution(x));
    return pool(y.with_features(at::relu(y.features())));
  }
  MinkResNetOptions options;
  int64_t in;
  nn::Convolution convolution{nullptr};
  nn::InstanceNorm norm{nullptr};
  nn::MaxPooling pool{nullptr};
};

/// Layers 0 to 3: dropout, a convolution, an instance norm and GELU.
struct MinkResNetImpl::Neck : torch::nn::Cloneable<Neck> {
  Neck(const MinkResNetOptions& options, int64_t channels) : options(options), channels(channels) { reset(); }
  void reset() override {
    dropout = register_module("0", nn::Dropout());
    convolution = register_module(
        "1", nn::Convolution(nn::ConvolutionOptions{channels, channels, kernel(options, /*size=*/3, /*stride=*/3)}));
    norm = register_module("2", nn::InstanceNorm(channels));
  }
  SparseTensor forward(const SparseTensor& x) {
    const SparseTensor y = norm(convolution(dropout(x)));
    return y.with_features(at::gelu(y.features()));
  }
  MinkResNetOptions options;
  int64_t channels;
  nn::Dropout dropout{nullptr};
  nn::Convolution convolution{nullptr};
  nn::InstanceNorm norm{nullptr};
};

MinkResNetOptions MinkResNetOptions::of_depth(int64_t depth, int64_t in_channels, int64_t out_channels,
                                              int64_t dimension) {
  MinkResNetOptions options{.in_channels = in_channels, .out_channels = out_channels, .dimension = dimension};
  if (depth == 14) return options;
  if (depth == 18)
    options.layers = {2, 2, 2, 2};
  else if (depth == 34 || depth == 50)
    options.layers = {3, 4, 6, 3};
  else if (depth == 101)
    options.layers = {3, 4, 23, 3};
  else
    fail("MinkResNet", "the depth is ", depth, ", expected 14, 18, 34, 50 or 101");
  if (depth >= 50) options.block = nn::BlockKind::bottleneck;
  return options;
}

void FieldNetworkImpl::reset() {
  wave_ = register_module("0", nn::Sinusoidal(in_, out_));
  wave_norm_ = register_module("1", nn::BatchNorm(out_));
  linear_ = register_module("3", nn::Linear(out_, out_));
  linear_norm_ = register_module("4", nn::BatchNorm(out_));
}

SparseTensor FieldNetworkImpl::forward(const TensorField& x) {
  const at::Tensor waves = at::relu(wave_norm_->on_features(wave_->on_features(x.features())));
  return x.with_features(at::relu(linear_norm_->on_features(linear_->on_features(waves)))).sparse();
}

MinkResNetImpl::MinkResNetImpl(const MinkResNetOptions& options) : options(options) {
  require(options.in_channels > 0 && options.out_channels > 0, "MinkResNet", "channels are ", options.in_channels,
          " -> ", options.out_channels, ", expected at least 1 of each");
  MinkResNetImpl::reset();
}

void MinkResNetImpl::reset() {
  layers_.clear();
  int64_t channels = options.in_channels;
  if (options.field) {
    field_ = register_module("field_network", FieldNetwork(channels, kFieldChannels));
    field2_ = register_module("field_network2", FieldNetwork(kFieldChannels + channels, kFieldChannels2));
    channels = kFieldChannels2;
  }
  stem_ = register_module("conv1", std::make_shared<Stem>(options, channels));
  channels = kStemChannels;
  for (size_t l = 0; l < kPlanes.size(); ++l) {
    const nn::BlockOptions first{
        .in_channels = channels, .planes = kPlanes[l], .stride = 2, .dimension = options.dimension};
    layers_.push_back(
        register_module("layer" + std::to_string(l + 1), ResidualStage(options.block, options.layers[l], first)));
    channels = layers_.back()->out_channels();
  }
  neck_ = register_module("conv5", std::make_shared<Neck>(options, channels));
  final_ = register_module("final", nn::Linear(channels, options.out_channels));
  initialise_as_minkowski(*this);
}

std::vector<Stage> MinkResNetImpl::stages() {
  std::vector<Stage> stages;
  if (options.field)
    stages.push_back(Stage::of<TensorField>("field_network", [this](const TensorField& x) {
      const SparseTensor voxels = field_(x);
      // A voxel's channels come before the point's, as in the weights of MinkowskiEngine.
      return field2_(x.with_features(at::cat({x.slice(voxels).features(), x.features()}, 1)));
    }));
  stages.push_back(Stage::of<SparseTensor>("conv1", [this](const SparseTensor& x) { return stem_->forward(x); }));
  for (size_t l = 0; l < layers_.size(); ++l) layers_[l]->add_stages("layer" + std::to_string(l + 1) + ".", stages);
  stages.push_back(Stage::of<SparseTensor>("conv5", [this](const SparseTensor& x) { return neck_->forward(x); }));
  stages.push_back(Stage::of<SparseTensor>(
      "final", [this](const SparseTensor& x) { return final_(global_pool(x, sparse::Pooling::max)).features(); }));
  return stages;
}

at::Tensor MinkResNetImpl::forward(const SparseTensor& x) {
  return options.field ? forward(points_of(x)) : fold<at::Tensor>(stages(), x);
}

at::Tensor MinkResNetImpl::forward(const TensorField& x) {
  return options.field ? fold<at::Tensor>(stages(), x) : fold<at::Tensor>(stages(), x.sparse());
}

}  // namespace lockstep::models
