// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/vae.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/context/draws.h"
#include "lockstep/models/clouds/residual_stage.h"
#include "lockstep/numerics/random.h"

namespace lockstep::models {
namespace {

namespace nn = sparse::nn;
using sparse::SparseTensor;

SparseTensor draw(const LatentDistribution& latent) {
  const at::Tensor deviation = at::exp(0.5 * latent.log_variance.features());
  const at::Tensor noise = normal_(at::empty_like(deviation), draw_key());
  return latent.mean.with_features(latent.mean.features() + deviation * noise);
}

}  // namespace

VaeEncoderImpl::VaeEncoderImpl(const VaeOptions& options) : options_(options) {
  VaeEncoderImpl::reset();
}

void VaeEncoderImpl::reset() {
  blocks_.clear();
  int64_t in = options_.in_channels;
  for (const int64_t channels : options_.channels) {
    std::vector<StackedConvolution> layers{{.out_channels = channels, .stride = 2}, {.out_channels = channels}};
    blocks_.push_back(register_module(text("block", blocks_.size() + 1),
                                      ConvolutionStack(in, std::move(layers), Activation::elu, options_.dimension)));
    in = channels;
  }
  mean_ = register_module("linear_mean", nn::Linear(in, in));
  log_variance_ = register_module("linear_log_var", nn::Linear(in, in));
  initialise_as_minkowski(*this);
}

LatentDistribution VaeEncoderImpl::forward(const SparseTensor& x) {
  SparseTensor y = x;
  for (ConvolutionStack& block : blocks_) y = block(y);
  require(!y.coordinates().slice(1, 1).any().item<bool>(), "VAE", "a cloud reaches beyond 0 and ",
          options_.resolution() - 1, ", expected all coordinates between these");
  const SparseTensor code = global_pool(y, sparse::Pooling::average);
  return {mean_(code), log_variance_(code)};
}

VaeDecoderImpl::VaeDecoderImpl(const VaeOptions& options) : options_(options) {
  VaeDecoderImpl::reset();
}

void VaeDecoderImpl::reset() {
  levels_.clear();
  const auto& channels = options_.channels;
  const auto add = [&](int64_t in, std::vector<StackedConvolution> layers) {
    const int64_t out = layers.back().out_channels;
    const std::string name = text("block", levels_.size() + 1);
    levels_.emplace_back(ConvolutionStack(in, std::move(layers), Activation::elu, options_.dimension), out,
                         options_.dimension);
    levels_.back().join(*this, name, name + "_cls");
  };
  const auto grow = [](int64_t out) {
    return StackedConvolution{out, /*kernel_size=*/2, /*stride=*/2, nn::ConvolutionKind::generative};
  };
  // The first block halves the side of voxels twice before it asks which of them are occupied.
  const int64_t code = channels.back(), first = channels[channels.size() - 2];
  add(code, {grow(code), {code}, grow(first), {first}});
  for (size_t level = channels.size() - 2; level-- > 0;)
    add(channels[level + 1], {grow(channels[level]), {channels[level]}});
}

Generated VaeDecoderImpl::forward(const SparseTensor& code, const Target& target) {
  require(target || !is_training(), "VAE", "there is no target, expected one in training");
  const sparse::AxisValues stride(options_.dimension, options_.resolution());
  Generated made;
  made.cloud = SparseTensor(code.features(), code.coordinates(), stride, sparse::Quantization::none, code.manager());
  for (GenerativeLevel& level : levels_)
    level.run(made, /*skip=*/nullptr, target, is_training() && &level != &levels_.back());
  return made;
}

VaeImpl::VaeImpl(const VaeOptions& options) : options(options) {
  require(options.channels.size() >= 2, "VAE", "there are channels of ", options.channels.size(),
          " resolutions, expected two at least");
  const int64_t least = std::min(options.in_channels, std::ranges::min(options.channels));
  require(least > 0, "VAE", "a layer has ", least, " channels, expected at least 1");
  VaeImpl::reset();
}

void VaeImpl::reset() {
  encoder_ = register_module("encoder", VaeEncoder(options));
  decoder_ = register_module("decoder", VaeDecoder(options));
}

Reconstruction VaeImpl::forward(const SparseTensor& x, const Target& target) {
  const LatentDistribution latent = encoder_(x);
  return {latent, decoder_(is_training() ? draw(latent) : latent.mean, target)};
}

at::Tensor latent_divergence(const LatentDistribution& latent) {
  const at::Tensor &mean = latent.mean.features(), &log_variance = latent.log_variance.features();
  const at::Tensor sum = (mean * mean + at::exp(log_variance) - log_variance - 1).sum();
  return 0.5 * sum / std::max<int64_t>(1, mean.numel());
}

}  // namespace lockstep::models
