// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/transport/transport.h"

namespace lockstep::comm {

/// Messages between GPUs through libtorch's NCCL: one process a GPU, this one's being cuda:`device`. Throws
/// TransportFailure where the ranks do not connect in time; built without a CUDA toolkit it throws Error.
std::shared_ptr<Transport> make_nccl_transport(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               int device, std::chrono::milliseconds timeout);

bool has_nccl();

}  // namespace lockstep::comm
