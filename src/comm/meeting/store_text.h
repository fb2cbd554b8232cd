// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {

/// The text under a key. Waits until somebody has set it.
inline std::string text_at(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

}  // namespace lockstep::comm
