// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/sparse/nn/convolution.h"
#include "lockstep/sparse/nn/norm.h"

/// Residual blocks with MinkowskiEngine's parameter names.
namespace lockstep::sparse::nn {

struct BlockOptions {
  int64_t in_channels = 0;
  int64_t planes = 0;  ///< channels inside; a BasicBlock gives as many, a Bottleneck four times as many
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t dimension = 3;
  double bn_momentum = 0.1;
  int64_t reduction = 0;  ///< of a squeeze-and-excitation layer `se` before the sum; 0: there is none
};

/// Weighs channels by what a batch entry has on average: mean, Linear to channels / reduction, ReLU, Linear, sigmoid.
/// Parameters `fc.0.linear.*`, `fc.2.linear.*`.
class SELayerImpl : public torch::nn::Cloneable<SELayerImpl> {
 public:
  explicit SELayerImpl(int64_t channels, int64_t reduction = 16);
  void reset() override;
  SparseTensor forward(const SparseTensor& x);

 private:
  struct Perceptron;
  int64_t channels_, reduction_;
  std::shared_ptr<Perceptron> fc_;
};
TORCH_MODULE(SELayer);

/// A residual block's other way, `downsample`: a convolution `0` of kernel size 1 and a batch norm `1`.
class ShortcutImpl : public torch::nn::Cloneable<ShortcutImpl> {
 public:
  ShortcutImpl(int64_t in, int64_t out, const BlockOptions& options) : in_(in), out_(out), options_(options) {
    reset();
  }
  void reset() override;
  SparseTensor forward(const SparseTensor& x) { return norm_(convolution_(x)); }

 private:
  int64_t in_, out_;
  BlockOptions options_;
  Convolution convolution_{nullptr};
  BatchNorm norm_{nullptr};
};
TORCH_MODULE(Shortcut);

enum class BlockKind {
  basic,      ///< two convolutions of kernel size 3
  bottleneck  ///< kernel sizes 1, 3, 1; the last one widens by four
};

/// Convolutions `conv1`, `conv2`, ... each with its `norm1`, `norm2`, ..., ReLU between, plus the input, then ReLU.
/// Where stride or channels change the input goes through `downsample`.
class ResidualBlockImpl : public torch::nn::Cloneable<ResidualBlockImpl> {
 public:
  using Options = BlockOptions;
  ResidualBlockImpl(const BlockOptions& options, BlockKind kind);
  void reset() override;
  SparseTensor forward(const SparseTensor& x);
  int64_t out_channels() const { return stages_.back().out_channels; }

 private:
  struct Stage {
    int64_t kernel_size, out_channels, stride, dilation;
  };
  BlockOptions options_;
  std::vector<Stage> stages_;
  std::vector<Convolution> convolutions_;
  std::vector<BatchNorm> norms_;
  SELayer se_{nullptr};
  Shortcut downsample_{nullptr};
};

using BasicBlock = HolderOfKind<ResidualBlockImpl, BlockKind::basic>;
using Bottleneck = HolderOfKind<ResidualBlockImpl, BlockKind::bottleneck>;

/// sin(x kernel + bias) coef: kernel [in, out], bias and coef [1, out].
class SinusoidalImpl : public torch::nn::Cloneable<SinusoidalImpl> {
 public:
  SinusoidalImpl(int64_t in_channels, int64_t out_channels) : in_(in_channels), out_(out_channels) { reset(); }
  void reset() override;
  SparseTensor forward(const SparseTensor& x) { return x.with_features(on_features(x.features())); }
  at::Tensor on_features(const at::Tensor& features);

  at::Tensor kernel, bias, coef;

 private:
  int64_t in_, out_;
};
TORCH_MODULE(Sinusoidal);

}  // namespace lockstep::sparse::nn
