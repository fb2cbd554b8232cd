// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::data {

/// The parts of a data set: what is trained on, and what the network is tested with.
enum class Subset : uint8_t { train, test };

/// "train" or "test".
inline const char* to_string(Subset subset) noexcept {
  return subset == Subset::train ? "train" : "test";
}

}  // namespace lockstep::data
