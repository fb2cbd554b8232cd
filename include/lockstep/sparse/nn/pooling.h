// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "lockstep/sparse/nn/convolution.h"

/// Layers without weights.
namespace lockstep::sparse::nn {

template <Pooling kPooling, bool kTransposed>
class LocalPoolingImpl : public torch::nn::Cloneable<LocalPoolingImpl<kPooling, kTransposed>> {
 public:
  explicit LocalPoolingImpl(const KernelOptions& options) : geometry_(options.geometry(kTransposed)) {}
  void reset() override {}
  SparseTensor forward(const SparseTensor& x, const OutputCoordinates& coordinates = {}) {
    return pool(x, kPooling, geometry_, coordinates);
  }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(OutputCoordinates())})

 private:
  LayerGeometry geometry_;
};
using SumPoolingImpl = LocalPoolingImpl<Pooling::sum, false>;
using AvgPoolingImpl = LocalPoolingImpl<Pooling::average, false>;
using MaxPoolingImpl = LocalPoolingImpl<Pooling::max, false>;
/// Unpooling: each output takes the mean of the inputs that reach it.
using PoolingTransposeImpl = LocalPoolingImpl<Pooling::average, true>;
TORCH_MODULE(SumPooling);
TORCH_MODULE(AvgPooling);
TORCH_MODULE(MaxPooling);
TORCH_MODULE(PoolingTranspose);

template <Pooling kPooling>
class GlobalPoolingImpl : public torch::nn::Cloneable<GlobalPoolingImpl<kPooling>> {
 public:
  void reset() override {}
  SparseTensor forward(const SparseTensor& x) { return global_pool(x, kPooling); }
};
using GlobalSumPoolingImpl = GlobalPoolingImpl<Pooling::sum>;
using GlobalAvgPoolingImpl = GlobalPoolingImpl<Pooling::average>;
using GlobalMaxPoolingImpl = GlobalPoolingImpl<Pooling::max>;
TORCH_MODULE(GlobalSumPooling);
TORCH_MODULE(GlobalAvgPooling);
TORCH_MODULE(GlobalMaxPooling);

}  // namespace lockstep::sparse::nn
