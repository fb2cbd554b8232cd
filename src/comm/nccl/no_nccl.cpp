// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

std::shared_ptr<Transport> make_nccl_transport(const c10::intrusive_ptr<c10d::Store>&, int, int, int,
                                               std::chrono::milliseconds) {
  fail("nccl", "this build has no NCCL, expected one configured with a CUDA toolkit and a CUDA build of libtorch");
}

bool has_nccl() {
  return false;
}

}  // namespace lockstep::comm
