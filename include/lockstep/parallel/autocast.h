// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace lockstep::parallel {

/// Mixed precision on the calling thread while it lives: libtorch's autocast, which runs convolutions and products in
/// `dtype` (bfloat16 or float16) and what needs it in float32. Weights stay float32 and so do their gradients.
///
///     const Autocast autocast(me.device().type(), at::kBFloat16);
///     loss = cross_entropy(net->forward(x), y);      // the backward pass may lie outside
///
/// autocast's cache of cast weights is off: all threads share it and any of them empties it, so whether a weight that
/// is used twice is cast once or twice, and with it the bits of its gradient, would depend on timing. Float16 needs
/// OptimizerOptions::initial_scale. Throws Error for another dtype.
class Autocast {
 public:
  Autocast(c10::DeviceType device, c10::ScalarType dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  c10::ScalarType dtype_before_;
  bool enabled_before_;
  bool cache_before_;
};

}  // namespace lockstep::parallel
