// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/fingerprint.h"

#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/numerics/pinned.h"
#include "numerics/cuda/device.h"

namespace lockstep {
namespace {

// "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build ..." -> "2024.2-Product"
std::string word_after(const std::string& sentence, const std::string& marker) {
  const size_t found = sentence.find(marker);
  if (found == std::string::npos) return sentence.empty() ? "none" : sentence;
  const size_t begin = found + marker.size();
  return sentence.substr(begin, sentence.find(' ', begin) - begin);
}

const std::string* find(const Fingerprint::Items& items, const std::string& key) {
  for (const auto& [name, value] : items)
    if (name == key) return &value;
  return nullptr;
}

}  // namespace

const char* version() noexcept {
  return LOCKSTEP_VERSION;
}

Fingerprint Fingerprint::of(const Device& device) {
  pin_numerics();  // as whatever computes does
  Items items{{"lockstep", version()},
              {"torch", TORCH_VERSION},
              {"mkl", word_after(at::get_mkl_version(), "Version ")},
              {"onednn", word_after(at::get_mkldnn_version(), "MKL-DNN v")}};
  if (device.kind == Device::Kind::cpu) {
    const std::string& vendor = cpu_info().vendor;
    items.insert(items.end(), {{"device", "cpu"},
                               {"isa", lockstep::to_string(cpu_level())},
                               {"torch_isa", at::get_cpu_capability()},
                               {"mkl_mode", mkl_mode()},
                               {"cpu_vendor", vendor.empty() ? "unknown" : vendor}});
  } else {
    const auto& devices = cuda_devices();
    require(device.index >= 0 && static_cast<size_t>(device.index) < devices.size(), "Fingerprint::of", "device is ",
            device.to_string(), ", expected one of the ", devices.size(), " CUDA devices here");
    const CudaDeviceInfo& info = devices[static_cast<size_t>(device.index)];
    items.insert(items.end(), {{"device", text("sm_", info.major, info.minor)},
                               {"gpu", info.name},
                               {"cuda", detail::cuda_runtime_version()},
                               {"cudnn", detail::cudnn_version()},
                               {"tf32", tf32_is_allowed() ? "on" : "off"}});
  }
  return Fingerprint(std::move(items));
}

std::string Fingerprint::to_string() const {
  std::string line;
  for (const auto& [key, value] : items_) line += text(line.empty() ? "" : ", ", key, " ", value);
  return line;
}

std::string Fingerprint::difference(const Fingerprint& there) const {
  std::string message;
  const auto note = [&](const std::string& key, const std::string& here, const std::string& other) {
    message += text(message.empty() ? "" : "; ", key, " is ", here, " here and ", other, " there");
  };
  for (const auto& [key, value] : items_) {
    const std::string* other = find(there.items_, key);
    if (other == nullptr || *other != value) note(key, value, other == nullptr ? "missing" : *other);
  }
  for (const auto& [key, value] : there.items_)
    if (find(items_, key) == nullptr) note(key, "missing", value);
  return message;
}

}  // namespace lockstep
