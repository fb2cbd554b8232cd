// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/failure/periodic.h"

namespace lockstep::comm {

/// Tells the ranks of one store that waiting is of no use any more, and whom the first of them to fail waited for.
/// Later calls change nothing. Throws where the store does.
void announce_failure(c10d::Store& store, int suspect);
std::optional<int> announced_failure(c10d::Store& store);

/// Notices that a process is gone where the transport would not: the memory of GPUs has no end of file. Each rank shows
/// a sign of life in the store, and looks at the next rank's; the first that finds none tells all.
class PeerWatch {
 public:
  struct Times {
    std::chrono::milliseconds every{1000};   // between two signs
    std::chrono::milliseconds silent{5000};  // without one a rank counts as lost
  };
  /// The store is this object's own: no other thread may wait in it.
  PeerWatch(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Times times);

  /// The rank that is lost, if one is.
  std::optional<int> lost() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
  const Periodic looks_;
};

}  // namespace lockstep::comm
