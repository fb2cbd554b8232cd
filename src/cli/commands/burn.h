// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/comm/connect.h"

namespace lockstep::cli {

/// `lockstep selftest --burn SECONDS`: the exit code.
int burn(double seconds, const comm::Environment& place, std::chrono::milliseconds timeout);

}  // namespace lockstep::cli
