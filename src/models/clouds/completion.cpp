// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/completion.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

using sparse::SparseTensor;
using sparse::nn::ConvolutionKind;

/// "s8": a tensor stride of 8.
std::string stride_name(size_t level) {
  return text("s", int64_t{1} << level);
}

}  // namespace

CompletionNetImpl::CompletionNetImpl(const CompletionOptions& options) : options(options) {
  require(options.channels.size() >= 2, "CompletionNet", "there are channels of ", options.channels.size(),
          " resolutions, expected two at least");
  const int64_t least = std::min(options.in_channels, std::ranges::min(options.channels));
  require(least > 0, "CompletionNet", "a layer has ", least, " channels, expected at least 1");
  CompletionNetImpl::reset();
}

void CompletionNetImpl::reset() {
  encoder_.clear();
  decoder_.clear();
  const auto& channels = options.channels;
  const auto stack = [&](int64_t in, std::vector<StackedConvolution> layers) {
    return ConvolutionStack(in, std::move(layers), Activation::elu, options.dimension);
  };
  encoder_.push_back(register_module("enc_block_s1", stack(options.in_channels, {{channels[0]}})));
  for (size_t level = 1; level < channels.size(); ++level)
    encoder_.push_back(register_module(
        text("enc_block_", stride_name(level - 1), stride_name(level)),
        stack(channels[level - 1],
              {{.out_channels = channels[level], .kernel_size = 2, .stride = 2}, {.out_channels = channels[level]}})));
  for (size_t level = channels.size() - 1; level-- > 0;) {
    // The first step grows past the voxels that it starts from.
    const int64_t kernel_size = level + 2 == channels.size() ? 4 : 2;
    const StackedConvolution grow{channels[level], kernel_size, /*stride=*/2, ConvolutionKind::generative};
    decoder_.emplace_back(stack(channels[level + 1], {grow, {.out_channels = channels[level]}}), channels[level],
                          options.dimension);
    decoder_.back().join(*this, text("dec_block_", stride_name(level + 1), stride_name(level)),
                         text("dec_", stride_name(level), "_cls"));
  }
}

Generated CompletionNetImpl::forward(const SparseTensor& partial, const Target& target) {
  require(target || !is_training(), "CompletionNet", "there is no target, expected one in training");
  std::vector<SparseTensor> skips;
  SparseTensor x = partial;
  for (ConvolutionStack& level : encoder_) skips.push_back(x = level(x));
  Generated made;
  made.cloud = x;
  skips.pop_back();
  for (GenerativeLevel& level : decoder_) {
    const bool finest = skips.size() == 1;
    level.run(made, &skips.back(), target, is_training() && !finest);
    skips.pop_back();
  }
  return made;
}

}  // namespace lockstep::models
