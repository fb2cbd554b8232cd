// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/sparse/residual_stage.h"

#include <numbers>
#include <string>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::models {

ResidualStageImpl::ResidualStageImpl(sparse::nn::BlockKind kind, int64_t blocks, const sparse::nn::BlockOptions& first)
    : kind_(kind), count_(blocks), first_(first) {
  require(blocks >= 1, "ResidualStage", "there are ", blocks, " blocks, expected at least 1");
  ResidualStageImpl::reset();
}

void ResidualStageImpl::reset() {
  blocks_.clear();
  sparse::nn::BlockOptions options = first_;
  for (int64_t number = 0; number < count_; ++number) {
    blocks_.push_back(
        register_module(std::to_string(number), std::make_shared<sparse::nn::ResidualBlockImpl>(options, kind_)));
    options.in_channels = out_channels();
    options.stride = 1;
  }
}

sparse::SparseTensor ResidualStageImpl::forward(sparse::SparseTensor x) {
  for (const auto& block : blocks_) x = block->forward(x);
  return x;
}

void initialise_as_minkowski(torch::nn::Module& network) {
  for (const auto& module : network.modules(/*include_self=*/false))
    if (const auto* layer = module->as<sparse::nn::ConvolutionImpl>();
        layer != nullptr && !layer->geometry().transposed)
      sparse::nn::kaiming_normal_(layer->kernel, std::numbers::sqrt2, /*fan_of_outputs=*/true);
}

}  // namespace lockstep::models
