// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "lockstep/norm/detail/batch_norm_hook.h"
#include "lockstep/sparse/operations.h"

namespace lockstep::sparse::nn {

struct BatchNormOptions {
  int64_t num_features = 0;
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

/// Weight, bias and running statistics under torch's names.
struct BatchNormStateImpl : torch::nn::Cloneable<BatchNormStateImpl> {
  explicit BatchNormStateImpl(BatchNormOptions options) : options(options) { reset(); }
  void reset() override;

  BatchNormOptions options;
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};

/// Batch norm over all points of a batch; parameters lie under `bn.`. norm::convert_sync_batchnorm makes statistics
/// those of all replicas. Like torch's, it uses batch statistics in evaluation too where it tracks none.
class BatchNormImpl : public torch::nn::Cloneable<BatchNormImpl>, public norm::BatchNormHook {
 public:
  explicit BatchNormImpl(BatchNormOptions options);
  explicit BatchNormImpl(int64_t num_features) : BatchNormImpl(BatchNormOptions{num_features}) {}
  void reset() override;
  SparseTensor forward(const SparseTensor& x) { return x.with_features(on_features(x.features())); }
  at::Tensor on_features(const at::Tensor& features);

  BatchNormStateImpl& state() { return *bn_; }

 private:
  BatchNormOptions options_;
  std::shared_ptr<BatchNormStateImpl> bn_;
};
TORCH_MODULE(BatchNorm);

/// Parameters `weight` and `bias` [1, C].
class InstanceNormImpl : public torch::nn::Cloneable<InstanceNormImpl> {
 public:
  explicit InstanceNormImpl(int64_t num_features) : channels_(num_features) { reset(); }
  void reset() override;
  SparseTensor forward(const SparseTensor& x) { return instance_norm(x, weight, bias); }

  at::Tensor weight, bias;

 private:
  int64_t channels_;
};
TORCH_MODULE(InstanceNorm);
/// MinkowskiEngine has a second one that does not cancel; this layer never does.
using StableInstanceNorm = InstanceNorm;

}  // namespace lockstep::sparse::nn
