// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "lockstep/comm/group.h"

namespace lockstep::train {

/// What `find` says on process 0, on all processes; an Error there is thrown on all. Collective.
std::string from_leader(const comm::Group& group, const std::function<std::string()>& find);

}  // namespace lockstep::train
