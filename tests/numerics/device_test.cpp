// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using detail::Inventory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Inventory two_cores{2, 0, false};
constexpr Inventory four_gpus{16, 4, true};

std::vector<std::string> names(std::string_view text, const Inventory& inventory) {
  std::vector<std::string> result;
  for (const Device& device : detail::parse_devices(text, inventory)) result.push_back(device.to_string());
  return result;
}

std::string message_of(std::string_view text, const Inventory& inventory) {
  try {
    detail::parse_devices(text, inventory);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Device, CpuIsOneSlotACore) {
  EXPECT_THAT(names("cpu", two_cores), ElementsAre("cpu:0", "cpu:1"));
  EXPECT_EQ(names("cpu", four_gpus).size(), 16u);
}

TEST(Device, CpuWithANumberIsThatManySlotsOnHoweverManyCores) {
  EXPECT_THAT(names("cpu:4", two_cores), ElementsAre("cpu:0", "cpu:1", "cpu:2", "cpu:3"));
  EXPECT_THAT(names("cpu:1", four_gpus), ElementsAre("cpu:0"));
}

TEST(Device, CudaIsEveryDeviceAndAListIsThoseInItsOrder) {
  EXPECT_THAT(names("cuda", four_gpus), ElementsAre("cuda:0", "cuda:1", "cuda:2", "cuda:3"));
  EXPECT_THAT(names("cuda:3,1", four_gpus), ElementsAre("cuda:3", "cuda:1"));
  EXPECT_THAT(names("cuda:2", four_gpus), ElementsAre("cuda:2"));
}

TEST(Device, ANumberIsTheBestThatMany) {
  EXPECT_THAT(names("2", four_gpus), ElementsAre("cuda:0", "cuda:1"));
  EXPECT_THAT(names("2", two_cores), ElementsAre("cpu:0", "cpu:1"));
  EXPECT_EQ(names("5", four_gpus), names("cpu:5", four_gpus));
}

TEST(Device, MistakesAreErrorsThatSayWhatIsThere) {
  for (const char* wrong : {"", "gpu", "cpu:", "cpu:0", "cpu:x", "cpu:-1", "cpu:99999999999", "0", "-2", "1.5",
                            "cuda:", "cuda:a", "cuda:0,", "cuda:,0", "cuda:4", "cuda:0,0", "cpu,cuda", " cpu"})
    EXPECT_THAT(message_of(wrong, four_gpus),
                AllOf(HasSubstr(text("parse_devices: got '", wrong, "'")), HasSubstr("expected cpu, cpu:4"),
                      HasSubstr("this host has 16 CPU cores and cuda:0 to cuda:3")));
  EXPECT_THAT(message_of("cuda:1,7", four_gpus), HasSubstr("cuda:7 is not there"));
  EXPECT_THAT(message_of("cuda:1,1", four_gpus), HasSubstr("names cuda:1 twice"));
  EXPECT_THAT(message_of("cuda", two_cores), HasSubstr("this host has 2 CPU cores (and this build no CUDA)"));
  EXPECT_THAT(message_of("cuda", Inventory{1, 0, true}), HasSubstr("this host has 1 CPU core and no CUDA device"));
}

TEST(Device, EverySlotIsTheCpuToLibtorch) {
  EXPECT_EQ((Device{Device::Kind::cpu, 3}.torch()), c10::Device(c10::kCPU));
  EXPECT_EQ((Device{Device::Kind::cuda, 3}.torch()), c10::Device(c10::kCUDA, 3));
}

TEST(Device, ThisHostsDevicesAreListedAndDescribed) {
  const auto devices = all_devices();
  EXPECT_EQ(devices.size(), cuda_devices().size() + static_cast<size_t>(cpu_info().cores));
  for (const Device& device : devices) EXPECT_THAT(describe(device), HasSubstr("memory"));
  EXPECT_THAT(describe({Device::Kind::cpu, 0}), AllOf(HasSubstr(cpu_info().model), HasSubstr("instructions")));
  EXPECT_THROW(describe({Device::Kind::cuda, 1000}), Error);
  EXPECT_EQ(parse_devices("cpu").size(), static_cast<size_t>(cpu_info().cores));
}

}  // namespace
}  // namespace lockstep
