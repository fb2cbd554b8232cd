// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/models/clouds/generative.h"

/// A variational autoencoder of clouds (Kingma and Welling 2014), with the names, the order and the shapes of
/// MinkowskiEngine's VAE: `encoder.block1.0.kernel`, `encoder.linear_mean.linear.weight`, `decoder.block1_cls.bias`.
namespace lockstep::models {

struct VaeOptions {
  int64_t in_channels = 1;
  int64_t dimension = 3;
  /// Of each resolution, from fine to coarse; the last is the size of the latent code.
  std::vector<int64_t> channels = {16, 32, 64, 128, 256, 512, 1024};

  /// Clouds lie within 0 and this, on each axis: 2 to the number of resolutions.
  int64_t resolution() const { return int64_t{1} << channels.size(); }
};

/// One row for each batch entry that has points.
struct LatentDistribution {
  sparse::SparseTensor mean, log_variance;
};

class VaeEncoderImpl : public torch::nn::Cloneable<VaeEncoderImpl> {
 public:
  explicit VaeEncoderImpl(const VaeOptions& options);
  void reset() override;
  /// x [N, in_channels] of tensor stride 1. Throws Error where a coordinate is not below the resolution.
  LatentDistribution forward(const sparse::SparseTensor& x);

 private:
  VaeOptions options_;
  std::vector<ConvolutionStack> blocks_;
  sparse::nn::Linear mean_{nullptr}, log_variance_{nullptr};
};
TORCH_MODULE(VaeEncoder);

class VaeDecoderImpl : public torch::nn::Cloneable<VaeDecoderImpl> {
 public:
  explicit VaeDecoderImpl(const VaeOptions& options);
  void reset() override;
  /// A code [B, channels.back()] at the origin of each batch entry becomes a cloud. In training, resolutions but the
  /// finest keep what the target has whether they find it or not, and a target must be given. Throws Error without one.
  Generated forward(const sparse::SparseTensor& code, const Target& target = {});

 private:
  VaeOptions options_;
  std::vector<GenerativeLevel> levels_;
};
TORCH_MODULE(VaeDecoder);

struct Reconstruction {
  LatentDistribution latent;
  Generated generated;
};

class VaeImpl : public torch::nn::Cloneable<VaeImpl> {
 public:
  /// Throws Error where there are fewer than two resolutions or a number of channels is below 1.
  explicit VaeImpl(const VaeOptions& options);
  void reset() override;
  /// In training the code is drawn from the distribution that the encoder gives, by key (numerics/random.h): from this
  /// thread's RandomScope, so that it follows from seed, step and replica. Else it is the mean.
  Reconstruction forward(const sparse::SparseTensor& x, const Target& target = {});
  VaeEncoder& encoder() { return encoder_; }
  VaeDecoder& decoder() { return decoder_; }

  VaeOptions options;

 private:
  VaeEncoder encoder_{nullptr};
  VaeDecoder decoder_{nullptr};
};
TORCH_MODULE(Vae);

/// The divergence of the codes' distribution from the standard normal one, as a mean over its rows and channels; 0
/// without rows.
at::Tensor latent_divergence(const LatentDistribution& latent);

}  // namespace lockstep::models
