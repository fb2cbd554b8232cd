// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/device_choice.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/error.h"
#include "numerics/cuda/device.h"

namespace lockstep {
namespace {

// "100", "90-real", "90a-virtual": a number and what is behind it.
bool runs_one(std::string_view architecture, int major, int minor) {
  int number = 0;
  const auto [end, error] = std::from_chars(architecture.data(), architecture.data() + architecture.size(), number);
  if (error != std::errc()) return true;  // "native", "all"
  const std::string_view rest(end, static_cast<size_t>(architecture.data() + architecture.size() - end));
  const int device = 10 * major + minor;
  if (rest.starts_with('a')) return number == device;  // for this one alone, as PTX too
  const bool code = rest != "-virtual" && number / 10 == major && number <= device;
  const bool ptx = rest != "-real" && number <= device;
  return code || ptx;
}

}  // namespace

bool detail::runs_on(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    const size_t end = std::min(architectures.find(','), architectures.size());
    if (runs_one(architectures.substr(0, end), major, minor)) return true;
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
  }
  return false;
}

std::string detail::usual_devices(int local_rank, int local_size, const Inventory& inventory) {
  if (inventory.cuda > 0) return text("cuda:", local_rank % inventory.cuda);
  return text("cpu:", std::max(1, inventory.cores / std::max(1, local_size)));
}

std::string usual_devices(int local_rank, int local_size) {
  return detail::usual_devices(local_rank, local_size, detail::inventory_of_this_host());
}

std::string gpu_identity(int index) {
  return index >= 0 && static_cast<size_t>(index) < cuda_devices().size() ? detail::cuda_identity(index) : "";
}

}  // namespace lockstep
