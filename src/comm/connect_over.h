// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/connect.h"

namespace lockstep::comm {

/// connect() by a store that is open already; null opens the environment's.
Group connect_over(c10::intrusive_ptr<c10d::Store> store, const Environment& place, const ConnectOptions& options);

}  // namespace lockstep::comm
