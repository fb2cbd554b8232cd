// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/peers.h"

#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {
thread_local Peers* current = nullptr;
}

at::Tensor Peers::meet(const std::vector<at::Tensor>& /*mine*/, const Joint& /*joint*/) {
  fail("Peers", "meet() was called where each replica runs its own backward pass, expected shares_backward()");
}

Peers* current_peers() noexcept {
  return current;
}

PeersScope::PeersScope(Peers* peers) noexcept : outer_(std::exchange(current, peers)) {}

PeersScope::~PeersScope() {
  current = outer_;
}

}  // namespace lockstep
