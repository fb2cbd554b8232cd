// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <optional>

#include "lockstep/parallel/autocast.h"
#include "lockstep/train/evaluation.h"

namespace lockstep::train {

/// Mixed precision on this thread while it lives, where it is asked for.
class PrecisionScope {
 public:
  PrecisionScope(Precision precision, c10::Device device) {
    if (precision != Precision::full)
      autocast_.emplace(device.type(), precision == Precision::bf16 ? c10::kBFloat16 : c10::kHalf);
  }

 private:
  std::optional<parallel::Autocast> autocast_;
};

}  // namespace lockstep::train
