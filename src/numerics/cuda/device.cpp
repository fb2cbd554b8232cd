// SPDX-License-Identifier: Apache-2.0
#include "numerics/cuda/device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda_runtime_api.h>
#include <signal.h>

#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/numerics/device_choice.h"

namespace lockstep::detail {

const bool has_cuda = true;

namespace {

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  require(error == cudaSuccess, "cuda_devices", "device ", index, " answers '", cudaGetErrorString(error),
          "', expected its properties");
  return properties;
}

/// CUDA starts threads of its own. They must not take the signals that a program blocks later to read them elsewhere,
/// as the launcher does: while this lives, signals are blocked in this thread and in those that it starts.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::vector<CudaDeviceInfo> find_cuda_devices() {
  const SignalsBlocked blocked;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cudaGetLastError();  // No driver or no device is an answer, not a failure: leave no error behind.
    log_debug("no CUDA devices: ", cudaGetErrorString(error));
    return {};
  }
  std::vector<CudaDeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    const cudaDeviceProp properties = properties_of(index);
    if (!runs_on(LOCKSTEP_CUDA_ARCHITECTURES, properties.major, properties.minor)) {
      log_warning("cuda:", index, " (", properties.name, ", sm_", properties.major, properties.minor,
                  ") is left out: this build has code for ", LOCKSTEP_CUDA_ARCHITECTURES,
                  "; configure one with -DCMAKE_CUDA_ARCHITECTURES=", properties.major, properties.minor,
                  index + 1 < count ? ", or hide the device (CUDA_VISIBLE_DEVICES) to use those after it" : "");
      break;
    }
    devices.push_back({properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                       static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return devices;
}

std::string cuda_identity(int index) {
  const auto uuid = properties_of(index).uuid;
  std::string name = "GPU";
  for (int byte = 0; byte < 16; ++byte) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[byte]));
    name += text(byte == 0 || (byte >= 4 && byte <= 10 && byte % 2 == 0) ? "-" : "", digits);
  }
  return name;
}

std::string cuda_runtime_version() {
  int version = 0;
  cudaRuntimeGetVersion(&version);
  return text(version / 1000, ".", version % 1000 / 10);
}

std::string cudnn_version() {
  const auto& hooks = at::detail::getCUDAHooks();
  if (!hooks.compiledWithCuDNN()) return {};
  const long version = hooks.versionCuDNN();
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace lockstep::detail
