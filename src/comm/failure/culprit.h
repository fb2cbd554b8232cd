// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {

/// Finds out who is to blame for a failure. A dead connection only says that something is wrong: the peer at its other
/// end may itself have given up because of a third. So every rank that fails says so in the store; one that stays
/// silent for `patience` died, stalled or did not come (the suspect before others), and the first verdict stands for
/// all. Returns `suspect` where the store does not answer in time.
int culprit_of_failure(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int suspect,
                       std::chrono::milliseconds patience) noexcept;

}  // namespace lockstep::comm
