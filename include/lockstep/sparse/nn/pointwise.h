// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/pimpl.h>

#include "lockstep/sparse/operations.h"
#include "lockstep/sparse/tensor_field.h"

/// Layers that look at each point on its own.
namespace lockstep::sparse::nn {

/// Any torch module of features, [N, C] to [N, C'], as a layer of sparse tensors; it lies under `module`.
template <class Holder>
class PointwiseImpl : public torch::nn::Cloneable<PointwiseImpl<Holder>> {
 public:
  explicit PointwiseImpl(Holder given) : module(std::move(given)) { this->register_module("module", module); }
  /// From what the module is made of: `Pointwise<torch::nn::LeakyReLU>(options)`.
  template <class... Arguments>
  requires std::constructible_from<Holder, Arguments...>
  explicit PointwiseImpl(Arguments&&... arguments) : PointwiseImpl(Holder(std::forward<Arguments>(arguments)...)) {}

  void reset() override {}
  /// The module inside is copied, not made anew from its options.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override {
    auto inner = std::dynamic_pointer_cast<typename Holder::Impl>(module->clone(device));
    auto copy = std::make_shared<PointwiseImpl>(Holder(std::move(inner)));
    copy->train(this->is_training());
    return copy;
  }

  SparseTensor forward(const SparseTensor& x) { return x.with_features(on_features(x.features())); }
  at::Tensor on_features(const at::Tensor& features) { return module->forward(features); }

  Holder module;
};

template <class Holder>
class Pointwise : public torch::nn::ModuleHolder<PointwiseImpl<Holder>> {
 public:
  using torch::nn::ModuleHolder<PointwiseImpl<Holder>>::ModuleHolder;
  using Impl = PointwiseImpl<Holder>;
};

using ReLU = Pointwise<torch::nn::ReLU>;
using ReLU6 = Pointwise<torch::nn::ReLU6>;
using PReLU = Pointwise<torch::nn::PReLU>;
using RReLU = Pointwise<torch::nn::RReLU>;
using LeakyReLU = Pointwise<torch::nn::LeakyReLU>;
using ELU = Pointwise<torch::nn::ELU>;
using CELU = Pointwise<torch::nn::CELU>;
using SELU = Pointwise<torch::nn::SELU>;
using GELU = Pointwise<torch::nn::GELU>;
using SiLU = Pointwise<torch::nn::SiLU>;
using Mish = Pointwise<torch::nn::Mish>;
using Hardshrink = Pointwise<torch::nn::Hardshrink>;
using Hardtanh = Pointwise<torch::nn::Hardtanh>;
using LogSigmoid = Pointwise<torch::nn::LogSigmoid>;
using Sigmoid = Pointwise<torch::nn::Sigmoid>;
using Softplus = Pointwise<torch::nn::Softplus>;
using Softshrink = Pointwise<torch::nn::Softshrink>;
using Softsign = Pointwise<torch::nn::Softsign>;
using Tanh = Pointwise<torch::nn::Tanh>;
using Tanhshrink = Pointwise<torch::nn::Tanhshrink>;
using Threshold = Pointwise<torch::nn::Threshold>;
/// Over the channels of each point: `Softmax(1)`.
using Softmax = Pointwise<torch::nn::Softmax>;
using Softmin = Pointwise<torch::nn::Softmin>;
using LogSoftmax = Pointwise<torch::nn::LogSoftmax>;
using AlphaDropout = Pointwise<torch::nn::AlphaDropout>;

/// A function of features as a layer.
template <at::Tensor (*kFunction)(const at::Tensor&)>
class FunctionImpl : public torch::nn::Cloneable<FunctionImpl<kFunction>> {
 public:
  void reset() override {}
  SparseTensor forward(const SparseTensor& x) { return x.with_features(kFunction(x.features())); }
  at::Tensor on_features(const at::Tensor& features) { return kFunction(features); }
};
using HardsigmoidImpl = FunctionImpl<at::hardsigmoid>;
using HardswishImpl = FunctionImpl<at::hardswish>;
TORCH_MODULE(Hardsigmoid);
TORCH_MODULE(Hardswish);

/// See keyed_dropout().
class DropoutImpl : public torch::nn::Cloneable<DropoutImpl> {
 public:
  explicit DropoutImpl(double probability = 0.5) : probability_(probability) {}
  void reset() override {}
  SparseTensor forward(const SparseTensor& x) { return keyed_dropout(x, probability_, is_training()); }
  at::Tensor on_features(const at::Tensor& features) { return keyed_dropout(features, probability_, is_training()); }

 private:
  double probability_;
};
TORCH_MODULE(Dropout);

/// A layer that looks at each point on its own (one of this file, Linear, BatchNorm) on the points of a field.
template <class Layer>
TensorField on_field(Layer& layer, const TensorField& x) {
  return x.with_features(layer->on_features(x.features()));
}

}  // namespace lockstep::sparse::nn
