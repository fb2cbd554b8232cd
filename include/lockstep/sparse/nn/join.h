// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "lockstep/sparse/operations.h"

/// Layers without weights that join sparse tensors, cut them, or turn them into something else: functions with a name
/// and a place in a network.
namespace lockstep::sparse::nn {

/// Each point with its batch entry's row of a global tensor.
template <SparseTensor (*kFunction)(const SparseTensor&, const SparseTensor&)>
class BroadcastOfImpl : public torch::nn::Cloneable<BroadcastOfImpl<kFunction>> {
 public:
  void reset() override {}
  SparseTensor forward(const SparseTensor& x, const SparseTensor& global) { return kFunction(x, global); }
};
using BroadcastImpl = BroadcastOfImpl<broadcast>;
using BroadcastAdditionImpl = BroadcastOfImpl<broadcast_add>;
using BroadcastMultiplicationImpl = BroadcastOfImpl<broadcast_multiply>;
using BroadcastConcatenationImpl = BroadcastOfImpl<broadcast_cat>;
TORCH_MODULE(Broadcast);
TORCH_MODULE(BroadcastAddition);
TORCH_MODULE(BroadcastMultiplication);
TORCH_MODULE(BroadcastConcatenation);

class PruningImpl : public torch::nn::Cloneable<PruningImpl> {
 public:
  void reset() override {}
  SparseTensor forward(const SparseTensor& x, const at::Tensor& keep) { return prune(x, keep); }
};
TORCH_MODULE(Pruning);

class UnionImpl : public torch::nn::Cloneable<UnionImpl> {
 public:
  void reset() override {}
  SparseTensor forward(const std::vector<SparseTensor>& tensors) { return unite(tensors); }
};
TORCH_MODULE(Union);

class InterpolationImpl : public torch::nn::Cloneable<InterpolationImpl> {
 public:
  void reset() override {}
  /// Features [M, C] at real coordinates [M, 1 + D].
  at::Tensor forward(const SparseTensor& x, const at::Tensor& coordinates) { return x.interpolate(coordinates); }
};
TORCH_MODULE(Interpolation);

/// [batches, C, extents...]; see SparseTensor::dense.
class ToDenseTensorImpl : public torch::nn::Cloneable<ToDenseTensorImpl> {
 public:
  explicit ToDenseTensorImpl(std::optional<std::vector<int64_t>> shape = std::nullopt) : shape_(std::move(shape)) {}
  void reset() override {}
  at::Tensor forward(const SparseTensor& x) { return x.dense(shape_).first; }

 private:
  std::optional<std::vector<int64_t>> shape_;
};
TORCH_MODULE(ToDenseTensor);

/// From a dense tensor [batches, C, extents...]; see to_sparse.
class ToSparseTensorImpl : public torch::nn::Cloneable<ToSparseTensorImpl> {
 public:
  explicit ToSparseTensorImpl(bool remove_zeros = true) : remove_zeros_(remove_zeros) {}
  void reset() override {}
  SparseTensor forward(const at::Tensor& dense) { return to_sparse(dense, remove_zeros_); }

 private:
  bool remove_zeros_;
};
TORCH_MODULE(ToSparseTensor);

class ToFeatureImpl : public torch::nn::Cloneable<ToFeatureImpl> {
 public:
  void reset() override {}
  at::Tensor forward(const SparseTensor& x) { return x.features(); }
};
TORCH_MODULE(ToFeature);

/// What each of several layers makes of one input, joined: channels side by side, or their sum, mean or variance.
template <SparseTensor (*kJoin)(const std::vector<SparseTensor>&)>
class StackImpl : public torch::nn::Cloneable<StackImpl<kJoin>> {
 public:
  using Layer = std::function<SparseTensor(const SparseTensor&)>;

  /// Layers are holders of modules (`Convolution`, `BatchNorm`, ...), registered as 0, 1, 2, ...
  template <class... Holders>
  explicit StackImpl(Holders... layers) {
    (add(std::move(layers)), ...);
  }
  void reset() override {}
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override {
    auto copy = std::make_shared<StackImpl>();
    for (const auto& again : add_clone_) again(*copy, device);
    copy->train(this->is_training());
    return copy;
  }
  template <class Holder>
  void add(Holder layer) {
    this->register_module(std::to_string(layers_.size()), layer);
    layers_.push_back([layer](const SparseTensor& x) mutable { return layer->forward(x); });
    add_clone_.push_back([layer](StackImpl& copy, const std::optional<at::Device>& device) {
      copy.add(Holder(std::dynamic_pointer_cast<typename Holder::Impl>(layer->clone(device))));
    });
  }
  SparseTensor forward(const SparseTensor& x) {
    std::vector<SparseTensor> outputs;
    for (const Layer& layer : layers_) outputs.push_back(layer(x));
    return kJoin(outputs);
  }

 private:
  std::vector<Layer> layers_;
  std::vector<std::function<void(StackImpl&, const std::optional<at::Device>&)>> add_clone_;
};
using StackCatImpl = StackImpl<cat>;
using StackSumImpl = StackImpl<stack_sum>;
using StackMeanImpl = StackImpl<stack_mean>;
using StackVarImpl = StackImpl<stack_var>;
TORCH_MODULE(StackCat);
TORCH_MODULE(StackSum);
TORCH_MODULE(StackMean);
TORCH_MODULE(StackVar);

}  // namespace lockstep::sparse::nn
