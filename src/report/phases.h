// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report/metrics.h"
#include "report/json.h"

namespace lockstep::report {

Json phases_to_json(const Phases& phases);
Phases phases_from_json(const JsonObject& object);

}  // namespace lockstep::report
