// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/transport/transport.h"

namespace lockstep::comm {

/// Messages over TCP through libtorch's Gloo. `address`: this host's address or network interface that the others
/// reach it by (IPv4, IPv6 or a name). Collective: returns once all ranks are connected. Built without Gloo's headers
/// it throws Error. Who waits in `store` must not keep other threads from it: shared_store() of a TCPStore.
std::shared_ptr<Transport> make_gloo_transport(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               const std::string& address, std::chrono::milliseconds timeout);

bool has_gloo();

}  // namespace lockstep::comm
