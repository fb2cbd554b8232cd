// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/clouds/generative.h"

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

namespace nn = sparse::nn;
using sparse::SparseTensor;

/// Whether the target, rounded to x's resolution, has each of x's voxels: bool [N], on the CPU.
at::Tensor occupied(const SparseTensor& x, const sparse::CoordinateMapKey& target) {
  const auto& manager = x.manager();
  return manager->map(manager->stride(target, x.tensor_stride()))->find(x.coordinates()).ge(0);
}

}  // namespace

at::Tensor occupancy_loss(const Generated& made) {
  require(!made.logits.empty() && made.logits.size() == made.targets.size(), "occupancy_loss", "there are logits of ",
          made.logits.size(), " resolutions and targets of ", made.targets.size(),
          ", expected as many and one at least");
  at::Tensor sum;
  for (size_t level = 0; level < made.logits.size(); ++level) {
    const at::Tensor logits = made.logits[level].features().squeeze(1);
    const at::Tensor loss = at::binary_cross_entropy_with_logits(logits, made.targets[level].to(logits.options()), {},
                                                                 {}, at::Reduction::Sum) /
                            std::max<int64_t>(1, logits.size(0));
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum / static_cast<double>(made.logits.size());
}

GenerativeLevel::GenerativeLevel(ConvolutionStack grow, int64_t channels, int64_t dimension)
    : grow_(std::move(grow)),
      classify_(nn::ConvolutionOptions{channels, 1, {.dimension = dimension, .kernel_size = {1}}, /*bias=*/true}) {}

void GenerativeLevel::join(torch::nn::Module& network, const std::string& stack, const std::string& classifier) const {
  network.register_module(stack, grow_);
  network.register_module(classifier, classify_);
}

void GenerativeLevel::run(Generated& made, const SparseTensor* skip, const Target& target, bool force) {
  SparseTensor grown = grow_(made.cloud);
  if (skip != nullptr) grown = grown + *skip;
  made.logits.push_back(classify_(grown));
  at::Tensor keep = made.logits.back().features().detach().squeeze(1).gt(0).cpu();
  if (target) {
    made.targets.push_back(occupied(grown, *target));
    if (force) keep = keep.logical_or(made.targets.back());
  }
  made.cloud = prune(grown, keep);
}

}  // namespace lockstep::models
