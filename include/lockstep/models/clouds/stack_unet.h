// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "lockstep/sparse/sparse_tensor.h"

namespace lockstep::models {

struct StackUNetOptions {
  int64_t in_channels = 3;
  int64_t out_channels = 20;
  int64_t dimension = 3;
};

/// A small U-net of sums, with the names, the order and the shapes of MinkowskiEngine's StackUNet (`net.0.0.kernel`,
/// `net.0.1.1.1.0.kernel`, `net.2.weight`): what a coarser grid has to say is unpooled and added.
class StackUNetImpl : public torch::nn::Cloneable<StackUNetImpl> {
 public:
  /// Throws Error where a number of channels is below 1.
  explicit StackUNetImpl(const StackUNetOptions& options);
  void reset() override;
  /// x [N, in_channels] -> [N, out_channels] at the same coordinates; N may be 0.
  sparse::SparseTensor forward(const sparse::SparseTensor& x);

  StackUNetOptions options;

 private:
  struct Net;
  std::shared_ptr<Net> net_;
};
TORCH_MODULE(StackUNet);

}  // namespace lockstep::models
