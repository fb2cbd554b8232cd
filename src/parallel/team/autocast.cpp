// SPDX-License-Identifier: Apache-2.0
// Lower precision on a replica's thread.
#include "lockstep/parallel/autocast.h"

#include <ATen/autocast_mode.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

namespace autocast = at::autocast;

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype)
    : device_(device),
      dtype_before_(autocast::get_autocast_dtype(device)),
      enabled_before_(autocast::is_autocast_enabled(device)),
      cache_before_(autocast::is_autocast_cache_enabled()) {
  require(dtype == at::kBFloat16 || dtype == at::kHalf, "Autocast", "dtype is ", dtype,
          ", expected bfloat16 or float16");
  autocast::set_autocast_dtype(device_, dtype);
  autocast::set_autocast_enabled(device_, true);
  autocast::set_autocast_cache_enabled(false);
}

Autocast::~Autocast() {
  autocast::set_autocast_dtype(device_, dtype_before_);
  autocast::set_autocast_enabled(device_, enabled_before_);
  autocast::set_autocast_cache_enabled(cache_before_);
}

}  // namespace lockstep::parallel
