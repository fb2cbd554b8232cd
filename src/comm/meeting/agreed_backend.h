// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace lockstep::comm {

/// The backend for ranks that would take these GPUs, by gpu_identity(), empty where a rank sees none: "nccl" where each
/// has one of its own, else "gloo". `wanted` is "auto" or "nccl"; where it is "nccl" and that can't be, throws Error
/// that names the ranks.
std::string choose_backend(const std::vector<std::string>& gpus, const std::string& wanted);

/// Collective: rank 0 hears from all which GPU they would take and chooses for all, so that no two ranks come to
/// different answers. Throws Error on every rank where the choice does, CommError where a rank does not come.
std::string agree_on_backend(c10d::Store& store, int rank, int size, const std::string& gpu, const std::string& wanted,
                             std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
