// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/comm/group.h"

namespace lockstep::parallel {

/// Collective. The text of the process with this rank.
std::string broadcast_text(const comm::Group& group, const std::string& mine, int from);

}  // namespace lockstep::parallel
