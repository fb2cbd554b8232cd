// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Something that computes one replica at a time: a slot on the CPU (a thread), or a GPU. All CPU slots share the
/// host's memory and are one device to libtorch.
struct Device {
  enum class Kind : uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;

  /// "cpu:1", "cuda:0"
  std::string to_string() const;
  /// Where its tensors live: "cpu" for every slot.
  c10::Device torch() const;
};

/// The devices that a text names:
///   `cpu`       one slot a physical core that this process may use (affinity and cgroup quota)
///   `cpu:4`     four slots, on however many cores
///   `cuda`      every CUDA device;  `cuda:0,2`  these two
///   `2`         the best two: CUDA devices where there are two, else slots on the CPU
/// Throws Error that says what is there when the text is none of these or names what is not there.
std::vector<Device> parse_devices(std::string_view text);

/// What a process that is alone computes on where nobody says it: "cuda:0" where there is a GPU, else "cpu".
std::string usual_devices();

/// Every CUDA device, then one slot a core: what `lockstep info` lists.
std::vector<Device> all_devices();

/// One line: name, cores or multiprocessors, memory, caches, instruction set. Throws Error for a CUDA device that is
/// not there.
std::string describe(const Device& device);

/// A CUDA device as its driver describes it.
struct CudaDeviceInfo {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  int major = 0;     ///< of its compute capability: 9 in sm_90
  int minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
};

/// Empty in a build without CUDA, and where there is no driver or no device.
const std::vector<CudaDeviceInfo>& cuda_devices();

/// Whether this build has CUDA at all.
bool built_with_cuda() noexcept;

namespace detail {
/// What parse_devices chooses from.
struct Inventory {
  int cores = 1;
  int cuda = 0;
  bool built_with_cuda = false;
};
std::vector<Device> parse_devices(std::string_view text, const Inventory& inventory);
}  // namespace detail

}  // namespace lockstep
