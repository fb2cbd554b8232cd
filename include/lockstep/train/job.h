// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/comm/group.h"

namespace lockstep::train {

/// Process 0's text, on all processes. Collective.
std::string broadcast_text(const std::string& mine, const comm::Group& group);

}  // namespace lockstep::train
