// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include "lockstep/train/evaluation.h"

namespace lockstep::train {

/// Mixed precision on this thread while it lives. torch's cache of cast weights is off: threads share it, and whoever
/// clears it first would decide how often a weight is cast, and so in which order its gradients are added.
class PrecisionScope {
 public:
  PrecisionScope(Precision precision, c10::Device device);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  Precision precision_;
  c10::DeviceType device_;
  bool enabled_before_ = false;
  bool cache_before_ = false;
};

}  // namespace lockstep::train
