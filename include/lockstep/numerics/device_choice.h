// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lockstep/numerics/device.h"

namespace lockstep {

/// What process `local_rank` of the `local_size` on this host computes on where nobody says it: the GPU of its number
/// among those that it sees ("cuda:1"), counted round where it sees fewer than there are processes; its part of the
/// cores ("cpu:2") where it sees none. A scheduler that shows each process one GPU is right with that, too.
std::string usual_devices(int local_rank, int local_size);

/// The name that a GPU has in every process and on every host ("GPU-8f2b...", its UUID); empty where there is no
/// cuda:`index`.
std::string gpu_identity(int index);

namespace detail {
std::string usual_devices(int local_rank, int local_size, const Inventory& inventory);

/// Whether device code that was compiled for these architectures, named as in CMAKE_CUDA_ARCHITECTURES
/// ("80-real,90-real,100"), runs on a device of this compute capability: code of its own generation, no newer than it,
/// or PTX (no "-real") of any older one.
bool runs_on(std::string_view architectures, int major, int minor);
}  // namespace detail

}  // namespace lockstep
