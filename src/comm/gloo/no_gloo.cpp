// SPDX-License-Identifier: Apache-2.0
#include "comm/gloo/gloo.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

std::shared_ptr<Transport> make_gloo_transport(const c10::intrusive_ptr<c10d::Store>&, int, int, const std::string&,
                                               std::chrono::milliseconds) {
  fail("gloo", "this build has no Gloo, expected one configured with Gloo's headers (Debian: libgloo-dev)");
}

bool has_gloo() {
  return false;
}

}  // namespace lockstep::comm
