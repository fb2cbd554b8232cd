// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep::dense {

/// While it lives, libtorch's operations on this thread are computed by this layer's where that is faster, forward and
/// backward: convolutions of few channels or of 1 x 1 with a stride, and average pooling, both of float32 images on the
/// CPU in channels-last. LOCKSTEP_DENSE=libtorch in the environment (read once) leaves all to libtorch; `own` takes all
/// that this layer can.
class Scope {
 public:
  Scope() noexcept;
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool outer_;
};

}  // namespace lockstep::dense
