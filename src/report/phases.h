// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <utility>

#include "lockstep/report/metrics.h"
#include "report/json.h"

namespace lockstep::report {

/// The phases of a step in the order in which they are drawn: first what computes, last what is lost.
inline constexpr std::array<std::pair<const char*, double Phases::*>, 6> phase_members{{
    {"forward", &Phases::forward},
    {"backward", &Phases::backward},
    {"update", &Phases::update},
    {"communication", &Phases::communication},
    {"data", &Phases::data},
    {"wait", &Phases::wait},
}};

Json phases_to_json(const Phases& phases);
Phases phases_from_json(const JsonObject& object);

}  // namespace lockstep::report
