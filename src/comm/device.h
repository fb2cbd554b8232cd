// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "comm/backend.h"
#include "lockstep/numerics/reduce.h"

namespace lockstep::comm {

/// `reduce` (numerics/reduce.h) where the data is on a GPU: enqueued on that GPU's current stream. Sources on other
/// GPUs of this host are read through peer access. Any number of sources; up to 64 destinations.
void reduce_on_cuda(int device, const TreeProgram& program, ReduceOp op, at::ScalarType dtype,
                    std::span<const std::byte* const> sources, std::span<std::byte* const> destinations, int64_t count,
                    int64_t divisor);

/// `reduce` for tensors of one size and dtype, wherever they are.
void reduce_tensors(const TreeProgram& program, ReduceOp op, const TensorList& sources, const TensorList& destinations,
                    int64_t divisor);

/// Orders an operation on CUDA tensors after what the poster's streams held, and what follows after the operation.
/// For CPU tensors, and in a build without CUDA, it does nothing.
class StreamOrder {
 public:
  StreamOrder() = default;
  /// Marks the current streams of the call's GPUs. Called by the thread that posts.
  static StreamOrder after_current(const Call& call);
  /// The GPU of the call's tensors, or -1.
  int device() const { return device_; }
  /// Makes the running thread's current stream of `device` wait for the mark.
  void enter(int device) const;
  /// Blocks until the running thread's current stream of the device has done its work.
  static void leave(int device);

 private:
  struct Mark;
  int device_ = -1;
  std::shared_ptr<Mark> mark_;
};

/// While it lives, the running thread works on this GPU, and on a stream that communication has for itself: it comes
/// before what else the GPU has to do, and waiting for it is waiting for nothing else. -1, and a build without CUDA:
/// nothing.
class SideStream {
 public:
  explicit SideStream(int device);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace lockstep::comm
