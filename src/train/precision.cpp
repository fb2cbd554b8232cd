// SPDX-License-Identifier: Apache-2.0
#include "train/precision.h"

#include <ATen/autocast_mode.h>

namespace lockstep::train {

PrecisionScope::PrecisionScope(Precision precision, c10::Device device)
    : precision_(precision), device_(device.type()) {
  if (precision_ == Precision::full) return;
  enabled_before_ = at::autocast::is_autocast_enabled(device_);
  cache_before_ = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, precision_ == Precision::bf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::set_autocast_cache_enabled(false);
}

PrecisionScope::~PrecisionScope() {
  if (precision_ == Precision::full) return;
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_cache_enabled(cache_before_);
}

}  // namespace lockstep::train
