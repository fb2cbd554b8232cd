// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/residual_stage.h"

#include <algorithm>
#include <numbers>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

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

void ResidualStageImpl::add_stages(const std::string& prefix, std::vector<Stage>& to) const {
  for (size_t number = 0; number < blocks_.size(); ++number)
    to.push_back(Stage::of<sparse::SparseTensor>(
        prefix + std::to_string(number),
        [block = blocks_[number].get()](const sparse::SparseTensor& x) { return block->forward(x); }));
}

// MinkowskiEngine's kaiming_normal_ takes a kernel [Cin, Cout] for torch's [out, in], so its fan of outputs is Cin. It
// has that form where there is one offset and no stride.
void initialise_as_minkowski(torch::nn::Module& network) {
  for (const auto& module : network.modules(/*include_self=*/false)) {
    const auto* layer = module->as<sparse::nn::ConvolutionImpl>();
    if (layer == nullptr || layer->geometry().transposed) continue;
    const bool matrix = layer->kernel.dim() == 2 &&
                        std::ranges::all_of(layer->geometry().stride, [](int64_t stride) { return stride == 1; });
    sparse::nn::kaiming_normal_(layer->kernel, std::numbers::sqrt2, /*fan_of_outputs=*/!matrix);
  }
}

}  // namespace lockstep::models
