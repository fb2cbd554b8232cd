// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/processor.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The number a text starts with; none where it starts with something else ("max", "").
std::optional<int64_t> leading_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> number_in(const fs::path& file) {
  return leading_number(first_line(file));
}

// "512K", "32M"
int64_t size_in(const fs::path& file) {
  const std::string line = first_line(file);
  const int64_t value = leading_number(line).value_or(0);
  if (line.ends_with('K')) return value << 10;
  return line.ends_with('M') ? value << 20 : value;
}

// The value of the first line "key   : value".
std::string value_of(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_last_not_of(" \t", colon - 1) + 1 != key.size()) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return {};
}

fs::path cpu_folder(const fs::path& root, int cpu) {
  return root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu));
}

// Two hardware threads of one core are one: they share the units that do the arithmetic.
int physical_cores(const fs::path& root, const std::vector<int>& cpus) {
  std::set<std::pair<int64_t, int64_t>> cores;
  for (int cpu : cpus) {
    const fs::path topology = cpu_folder(root, cpu) / "topology";
    const auto core = number_in(topology / "core_id"), package = number_in(topology / "physical_package_id");
    if (!core || !package) return std::max<int>(1, static_cast<int>(cpus.size()));
    cores.emplace(*package, *core);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

std::vector<int> host_cpus(const fs::path& root) {
  std::vector<int> cpus;
  for (int cpu = 0; fs::exists(cpu_folder(root, cpu)); ++cpu) cpus.push_back(cpu);
  return cpus;
}

// The folders that hold the limits of this process's cgroup and of all above it, for one controller of version 1, or
// for version 2 where the controller is empty. Inside a container the path is often that of the host, which is not
// mounted: then the container's own root holds the limit.
std::vector<fs::path> cgroup_folders(const fs::path& root, std::string_view controller) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "4:cpu,cpuacct:/a/b", or "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    bool found = controller.empty() && second == first + 1;
    for (std::string name; std::getline(names, name, ',');) found |= name == controller;
    if (!found) continue;
    const fs::path mount = root / "sys/fs/cgroup" / controller;
    std::vector<fs::path> folders;
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path(); !path.empty(); path = path.parent_path())
      folders.push_back(mount / path);
    folders.push_back(mount);
    return folders;
  }
  return {};
}

// Whole cores that the quota pays for, at least one.
int64_t quota_cores(const fs::path& root) {
  int64_t least = unlimited;
  const auto limit = [&](std::optional<int64_t> quota, std::optional<int64_t> period) {
    if (quota && period && *quota > 0 && *period > 0) least = std::min(least, std::max<int64_t>(1, *quota / *period));
  };
  for (const fs::path& folder : cgroup_folders(root, "")) {
    const std::string line = first_line(folder / "cpu.max");  // "150000 100000", or "max 100000"
    const size_t space = line.find(' ');
    if (space != std::string::npos)
      limit(leading_number(line), leading_number(std::string_view(line).substr(space + 1)));
  }
  for (const fs::path& folder : cgroup_folders(root, "cpu"))
    limit(number_in(folder / "cpu.cfs_quota_us"), number_in(folder / "cpu.cfs_period_us"));
  return least;
}

int64_t memory_limit(const fs::path& root) {
  int64_t least = unlimited;
  for (const fs::path& folder : cgroup_folders(root, ""))
    least = std::min(least, number_in(folder / "memory.max").value_or(unlimited));
  for (const fs::path& folder : cgroup_folders(root, "memory"))
    least = std::min(least, number_in(folder / "memory.limit_in_bytes").value_or(unlimited));
  return least;
}

void read_caches(const fs::path& cpu, CpuInfo& info) {
  for (int index = 0; fs::exists(cpu / "cache" / ("index" + std::to_string(index))); ++index) {
    const fs::path cache = cpu / "cache" / ("index" + std::to_string(index));
    const std::string type = first_line(cache / "type");
    if (type == "Instruction") continue;
    const int64_t level = number_in(cache / "level").value_or(0);
    if (level == 1) info.l1d_bytes = size_in(cache / "size");
    if (level == 2) info.l2_bytes = size_in(cache / "size");
    if (level == 3) info.l3_bytes = size_in(cache / "size");
  }
}

}  // namespace

std::vector<int> detail::allowed_cpus() {
  // The kernel refuses a set smaller than its own: a big host needs more than the 1,024 CPUs of cpu_set_t.
  for (int count = CPU_SETSIZE; count <= CPU_SETSIZE * 64; count *= 2) {
    cpu_set_t* set = CPU_ALLOC(count);
    const size_t bytes = CPU_ALLOC_SIZE(count);
    std::vector<int> cpus;
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < count; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (known) return cpus;
  }
  return {0};
}

CpuInfo detail::read_cpu_info(const fs::path& root, const std::vector<int>& allowed) {
  CpuInfo info;
  const fs::path description = root / "proc/cpuinfo";
  info.vendor = value_of(description, "vendor_id");
  info.model = value_of(description, "model name");
  if (info.model.empty()) info.model = "unknown CPU";
  info.cores = static_cast<int>(std::min<int64_t>(physical_cores(root, allowed), quota_cores(root)));
  info.host_cores = std::max(info.cores, physical_cores(root, host_cpus(root)));
  const int64_t host_kib = leading_number(value_of(root / "proc/meminfo", "MemTotal")).value_or(0);
  info.memory_bytes = std::min(host_kib << 10, memory_limit(root));
  read_caches(cpu_folder(root, allowed.empty() ? 0 : allowed.front()), info);
  return info;
}

const CpuInfo& cpu_info() {
  static const CpuInfo info = detail::read_cpu_info("/", detail::allowed_cpus());
  return info;
}

}  // namespace lockstep
