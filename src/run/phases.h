// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/run/detail/json.h"
#include "lockstep/run/metrics.h"

namespace lockstep::run {

Json phases_to_json(const Phases& phases);
Phases phases_from_json(const JsonObject& object);

}  // namespace lockstep::run
