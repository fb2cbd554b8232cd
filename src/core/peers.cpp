// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/peers.h"

#include <utility>

namespace lockstep {
namespace {
thread_local Peers* current = nullptr;
}

Peers* current_peers() noexcept { return current; }

PeersScope::PeersScope(Peers* peers) noexcept : outer_(std::exchange(current, peers)) {}

PeersScope::~PeersScope() { current = outer_; }

}  // namespace lockstep
