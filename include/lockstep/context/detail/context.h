// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/context/overrides.h"

namespace lockstep {

class Borders;
class Draws;
class Peers;
class Slices;
class Timeline;
struct ImageOperations;
namespace norm {
class AfterStep;
}

/// What the thread of a replica knows, and nobody passes through a network's forward(). On a thread that runs no
/// replica all of it is empty. The scopes that users open (RandomScope, TimelineScope) change one field while they
/// live.
struct Context {
  Peers* peers = nullptr;                    ///< the replica's number, and how it meets the others
  Draws* draws = nullptr;                    ///< where its random numbers come from
  Timeline* timeline = nullptr;              ///< where its time goes
  const ImageOperations* images = nullptr;   ///< in charge of convolution and pooling, in place of libtorch's kernels
  const Slices* slices = nullptr;            ///< in which layers are computed; null: each as a whole
  Borders* borders = nullptr;                ///< between the stages of a network that a team divides
  norm::AfterStep* after_step = nullptr;     ///< what is done for batch norms when the step is over; null: at once
  std::optional<uint64_t> before_wait = {};  ///< autograd's number in front of the last node that waits

  /// The calling thread's.
  static Context& current() noexcept;
};

/// The calling thread knows this, and nothing else, while the scope lives. Whoever runs replicas opens one on each of
/// their threads. Scopes nest.
class ContextScope {
 public:
  explicit ContextScope(const Context& context) : outer_(Context::current()) {
    install_overrides();
    if (context.slices != nullptr) install_sliced_products();
    Context::current() = context;
  }
  ~ContextScope() { Context::current() = outer_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context outer_;
};

}  // namespace lockstep
