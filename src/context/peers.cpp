// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/peers.h"

#include "lockstep/base/error.h"
#include "lockstep/context/detail/context.h"

namespace lockstep {

Peers::Gathered Peers::begin_all_gather(const at::Tensor& mine) {
  return [this, mine] { return all_gather(mine); };
}

Peers::GatherRows Peers::gather_rows() const {
  return [](const at::Tensor& mine) { return [mine] { return mine; }; };
}

at::Tensor Peers::meet(const std::vector<at::Tensor>& /*mine*/, const Joint& /*joint*/) {
  fail("Peers", "meet() was called where each replica runs its own backward pass, expected shares_backward()");
}

Peers* current_peers() noexcept {
  return Context::current().peers;
}

}  // namespace lockstep
