// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "comm/backend.h"
#include "comm/transport/transport.h"

namespace lockstep::comm {

/// The group whose members send each other messages through this transport. `asks_around`: see ConnectOptions.
std::shared_ptr<Backend> make_transport_backend(std::shared_ptr<Transport> transport, std::chrono::milliseconds timeout,
                                                bool asks_around = true);

}  // namespace lockstep::comm
