// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <vector>

#include "lockstep/numerics/device.h"

namespace lockstep {

/// The streams of GPUs that the thread that makes it works on, for threads that it hands work to: a new thread has the
/// default ones, which nothing orders after the caller's. Empty, and without cost, where there is no GPU.
inline std::vector<c10::Stream> callers_streams() {
  std::vector<c10::Stream> streams;
  if (cuda_devices().empty()) return streams;
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  for (size_t index = 0; index < cuda_devices().size(); ++index)
    streams.push_back(guard.getStream({c10::kCUDA, static_cast<c10::DeviceIndex>(index)}));
  return streams;
}

/// While it lives the running thread works on those streams, and on this device where it is a GPU.
class OnCallersStreams {
 public:
  explicit OnCallersStreams(const std::vector<c10::Stream>& streams, c10::Device device = c10::kCPU)
      : streams_(streams) {
    if (device.is_cuda()) device_.reset_device(device);
  }

 private:
  c10::MultiStreamGuard streams_;
  c10::OptionalDeviceGuard device_;
};

}  // namespace lockstep
