// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/device.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "numerics/cuda/device.h"

namespace lockstep {
namespace {

constexpr int most_slots = 4096;

std::string what_is_there(const detail::Inventory& inventory) {
  const std::string cores = text(inventory.cores, inventory.cores == 1 ? " CPU core" : " CPU cores");
  if (!inventory.built_with_cuda) return text("this host has ", cores, " (and this build no CUDA)");
  if (inventory.cuda == 0) return text("this host has ", cores, " and no CUDA device");
  return text("this host has ", cores, " and cuda:0", inventory.cuda == 1 ? "" : text(" to cuda:", inventory.cuda - 1));
}

[[noreturn]] void refuse(std::string_view text, const std::string& problem, const detail::Inventory& inventory) {
  fail("parse_devices", "got '", text, "', ", problem,
       "; expected cpu, cpu:4 (four slots), cuda, cuda:0,1 or 2 (the best two); ", what_is_there(inventory));
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

std::vector<Device> first(Device::Kind kind, int count) {
  std::vector<Device> devices;
  for (int index = 0; index < count; ++index) devices.push_back({kind, index});
  return devices;
}

std::vector<Device> parse_cuda_list(std::string_view all, const detail::Inventory& inventory) {
  std::vector<Device> devices;
  std::string_view rest = all.substr(5);  // past "cuda:"
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
    const auto index = whole_number(item);
    if (!index) refuse(all, text("where '", item, "' is no index"), inventory);
    if (*index >= inventory.cuda) refuse(all, text("where cuda:", *index, " is not there"), inventory);
    const Device device{Device::Kind::cuda, *index};
    for (const Device& other : devices)
      if (other == device) refuse(all, text("which names ", device.to_string(), " twice"), inventory);
    devices.push_back(device);
  }
  return devices;
}

std::string readable_bytes(int64_t bytes) {
  if (bytes < 1 << 20) return text(bytes >> 10, " KiB");
  if (bytes < 1 << 30) return text(bytes >> 20, " MiB");
  return text(std::round(static_cast<double>(bytes) / (1 << 30) * 10) / 10, " GiB");
}

std::string describe_cpu() {
  const CpuInfo& info = cpu_info();
  std::string line = text(info.model, ", ", info.cores, " of ", info.host_cores, " cores, ",
                          readable_bytes(info.memory_bytes), " memory");
  if (info.l1d_bytes > 0)
    line += text(", caches ", readable_bytes(info.l1d_bytes), " L1d, ", readable_bytes(info.l2_bytes), " L2, ",
                 readable_bytes(info.l3_bytes), " L3");
  return line + text(", instructions ", to_string(best_cpu_level()));
}

}  // namespace

detail::Inventory detail::inventory_of_this_host() {
  return {cpu_info().cores, static_cast<int>(cuda_devices().size()), built_with_cuda()};
}

std::string Device::to_string() const {
  return text(kind == Kind::cpu ? "cpu:" : "cuda:", index);
}

c10::Device Device::torch() const {
  return kind == Kind::cpu ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

std::vector<Device> detail::parse_devices(std::string_view text, const Inventory& inventory) {
  const auto slots = [&](std::optional<int> count) {
    if (!count || *count < 1 || *count > most_slots)
      refuse(text, lockstep::text("which is no count from 1 to ", most_slots), inventory);
    return *count;
  };
  if (text == "cpu") return first(Device::Kind::cpu, inventory.cores);
  if (text.starts_with("cpu:")) return first(Device::Kind::cpu, slots(whole_number(text.substr(4))));
  if (text == "cuda") {
    if (inventory.cuda == 0) refuse(text, "and there is none", inventory);
    return first(Device::Kind::cuda, inventory.cuda);
  }
  if (text.starts_with("cuda:")) return parse_cuda_list(text, inventory);
  if (const auto count = whole_number(text))
    return first(*count <= inventory.cuda ? Device::Kind::cuda : Device::Kind::cpu, slots(count));
  refuse(text, "which names no device", inventory);
}

std::vector<Device> parse_devices(std::string_view text) {
  return detail::parse_devices(text, detail::inventory_of_this_host());
}

std::string usual_devices() {
  return cuda_devices().empty() ? "cpu" : "cuda:0";
}

std::vector<Device> all_devices() {
  std::vector<Device> devices = first(Device::Kind::cuda, static_cast<int>(cuda_devices().size()));
  for (const Device& slot : first(Device::Kind::cpu, cpu_info().cores)) devices.push_back(slot);
  return devices;
}

std::string describe(const Device& device) {
  if (device.kind == Device::Kind::cpu) return describe_cpu();
  const auto& devices = cuda_devices();
  require(device.index >= 0 && static_cast<size_t>(device.index) < devices.size(), "describe", "got ",
          device.to_string(), ", expected a device that is there: ", what_is_there(detail::inventory_of_this_host()));
  const CudaDeviceInfo& info = devices[static_cast<size_t>(device.index)];
  return text(info.name, ", sm_", info.major, info.minor, ", ", info.multiprocessors, " multiprocessors, ",
              readable_bytes(info.memory_bytes), " memory");
}

const std::vector<CudaDeviceInfo>& cuda_devices() {
  static const std::vector<CudaDeviceInfo> devices = detail::find_cuda_devices();
  return devices;
}

bool built_with_cuda() noexcept {
  return detail::has_cuda;
}

}  // namespace lockstep
