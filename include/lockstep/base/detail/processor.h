// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// What this process may use of its host's CPU.
struct CpuInfo {
  std::string vendor;        ///< "AuthenticAMD"; empty where the kernel does not say
  std::string model;         ///< "AMD EPYC"
  int host_cores = 1;        ///< physical cores of the whole host
  int cores = 1;             ///< physical cores that this process may run on, at most its cgroup's quota
  int64_t memory_bytes = 0;  ///< of the host, at most its cgroup's limit
  int64_t l1d_bytes = 0;     ///< data cache of one core; 0 where the kernel does not say
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;  ///< of one group of cores that share it
};

/// Read when first asked for; a later change of affinity is not seen.
const CpuInfo& cpu_info();

namespace detail {
/// The CPUs (hardware threads) that this process may run on; CPU 0 alone where the kernel does not say.
std::vector<int> allowed_cpus();

/// Reads the files that Linux keeps below `root` (a test gives a folder of its own) for these CPUs.
CpuInfo read_cpu_info(const std::filesystem::path& root, const std::vector<int>& allowed);
}  // namespace detail

}  // namespace lockstep
