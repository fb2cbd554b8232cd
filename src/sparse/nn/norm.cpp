// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/nn/norm.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/error.h"

namespace lockstep::sparse::nn {

void BatchNormStateImpl::reset() {
  require(options.num_features >= 0, "BatchNorm", "num_features is ", options.num_features, ", expected 0 or more");
  if (options.affine) {
    weight = register_parameter("weight", at::ones({options.num_features}));
    bias = register_parameter("bias", at::zeros({options.num_features}));
  }
  if (options.track_running_stats) {
    running_mean = register_buffer("running_mean", at::zeros({options.num_features}));
    running_var = register_buffer("running_var", at::ones({options.num_features}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
}

BatchNormImpl::BatchNormImpl(BatchNormOptions options) : options_(options) {
  reset();
}

void BatchNormImpl::reset() {
  bn_ = register_module("bn", std::make_shared<BatchNormStateImpl>(options_));
}

at::Tensor BatchNormImpl::on_features(const at::Tensor& features) {
  if (is_training() && bn_->num_batches_tracked.defined()) bn_->num_batches_tracked.add_(1);
  const bool training = is_training() || !options_.track_running_stats;
  if (training && training_function())
    return training_function()(features, bn_->weight, bn_->bias, bn_->running_mean, bn_->running_var, options_.momentum,
                               options_.eps);
  return batch_norm(features, bn_->weight, bn_->bias, bn_->running_mean, bn_->running_var, training, options_.momentum,
                    options_.eps);
}

void InstanceNormImpl::reset() {
  weight = register_parameter("weight", at::ones({1, channels_}));
  bias = register_parameter("bias", at::zeros({1, channels_}));
}

}  // namespace lockstep::sparse::nn
