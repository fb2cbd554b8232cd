// SPDX-License-Identifier: Apache-2.0
// Tests that run on every device are parameterised over its kind: `INSTANTIATE_TEST_SUITE_P(On, Suite, every_device(),
// device_name)`, with SKIP_WITHOUT_DEVICE() as the first line of a test. The CUDA twin skips, by name, where there is
// no CUDA device.
#pragma once

#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/numerics/device.h"

namespace lockstep {

inline auto every_device() {
  return testing::Values(c10::Device(c10::kCPU), c10::Device(c10::kCUDA, 0));
}

inline std::string device_name(const testing::TestParamInfo<c10::Device>& info) {
  return c10::DeviceTypeName(info.param.type(), /*lower_case=*/true);
}

namespace test {

/// cpu:0, cpu:1, ...: so many devices.
inline std::vector<Device> cpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back({Device::Kind::cpu, i});
  return devices;
}

}  // namespace test
}  // namespace lockstep

#define SKIP_WITHOUT_DEVICE() \
  if (GetParam().is_cuda() && at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device here"
