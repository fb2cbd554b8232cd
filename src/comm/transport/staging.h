// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/transport/wrapped.h"

namespace lockstep::comm {

/// A transport for tensors on any device: those that the inner one does not reach travel as copies on its own device.
/// NCCL knows GPUs alone, but losses, counts and norms are summed on the CPU; sockets know the CPU alone, but two
/// processes that share a GPU have nothing else.
class StagingTransport : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;

  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override;
  bool ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) override;

 protected:
  virtual bool reaches(const at::Tensor& tensor) const { return tensor.device().type() == device().type(); }
};

}  // namespace lockstep::comm
