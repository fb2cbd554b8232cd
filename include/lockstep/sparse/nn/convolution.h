// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/pimpl.h>

#include "lockstep/sparse/nn/holder.h"
#include "lockstep/sparse/operations.h"

/// Layers with weights, as torch modules that take and give sparse tensors. Parameters have MinkowskiEngine's names and
/// shapes: `kernel` [K, Cin, Cout] ([Cin, Cout] where K = 1; [K, C] of a channelwise layer), `bias` [1, Cout].
namespace lockstep::sparse::nn {

/// What a convolution or pooling layer looks at. Sizes given as one value hold for every axis.
struct KernelOptions {
  int64_t dimension = 3;
  AxisValues kernel_size = {3};
  AxisValues stride = {1};
  AxisValues dilation = {1};
  RegionType region = RegionType::hypercube;
  std::vector<int64_t> offsets = {};  ///< of a custom region
  bool expand_coordinates = false;

  LayerGeometry geometry(bool transposed = false, bool generative = false) const;
};

struct ConvolutionOptions {
  int64_t in_channels = 0, out_channels = 0;
  KernelOptions kernel;
  bool bias = false;
  int64_t groups = 1;
};

/// What the four convolutions share.
class ConvolutionBase {
 public:
  const ConvolutionOptions& options() const { return options_; }
  const LayerGeometry& geometry() const { return geometry_; }

 protected:
  ConvolutionBase(ConvolutionOptions options, bool transposed, bool generative);

  ConvolutionOptions options_;
  LayerGeometry geometry_;
};

/// A kernel parameter filled with normal values of variance gain^2 / fan, as He et al. (2015) do for ReLU (gain sqrt
/// 2); the fan is that of the inputs, or of the outputs. For [K, Cin, Cout] and [Cin, Cout].
void kaiming_normal_(const at::Tensor& kernel, double gain, bool fan_of_outputs = false);

enum class ConvolutionKind {
  forward,
  transposed,  ///< to the finer coordinates that the manager knows, else to all that an input reaches
  generative,  ///< transposed, to all finer coordinates that an input reaches
};

class ConvolutionImpl : public torch::nn::Cloneable<ConvolutionImpl>, public ConvolutionBase {
 public:
  using Options = ConvolutionOptions;
  explicit ConvolutionImpl(ConvolutionOptions options, ConvolutionKind kind = ConvolutionKind::forward);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Outputs lie where the geometry says, or at `coordinates`.
  SparseTensor forward(const SparseTensor& x, const OutputCoordinates& coordinates = {});

  at::Tensor kernel, bias;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(OutputCoordinates())})
};
TORCH_MODULE(Convolution);

using ConvolutionTranspose = HolderOfKind<ConvolutionImpl, ConvolutionKind::transposed>;
using GenerativeConvolutionTranspose = HolderOfKind<ConvolutionImpl, ConvolutionKind::generative>;

class ChannelwiseConvolutionImpl : public torch::nn::Cloneable<ChannelwiseConvolutionImpl>, public ConvolutionBase {
 public:
  /// `out_channels` and `groups` have no meaning here.
  explicit ChannelwiseConvolutionImpl(ConvolutionOptions options);
  void reset() override;
  void reset_parameters();
  SparseTensor forward(const SparseTensor& x, const OutputCoordinates& coordinates = {});

  at::Tensor kernel, bias;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(OutputCoordinates())})
};
TORCH_MODULE(ChannelwiseConvolution);

/// x W^T + b on features; parameters `linear.weight` [out, in] and `linear.bias` [out].
class LinearImpl : public torch::nn::Cloneable<LinearImpl> {
 public:
  LinearImpl(int64_t in_features, int64_t out_features, bool bias = true);
  void reset() override;
  SparseTensor forward(const SparseTensor& x);
  at::Tensor on_features(const at::Tensor& features);

 private:
  int64_t in_, out_;
  bool has_bias_;
  std::shared_ptr<torch::nn::Module> linear_;
};
TORCH_MODULE(Linear);

}  // namespace lockstep::sparse::nn
