// SPDX-License-Identifier: Apache-2.0
// What the devices of a process did, for a trace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/timeline.h"

namespace lockstep::parallel {

/// A row for each device, part after part: the spans in which it had a replica, each with its number. Between them it
/// waited: where a network is divided these gaps are the bubble. `devices`: of each part. A replica that computes no
/// part in particular counts for any device that is free.
std::vector<TraceRow> device_rows(std::span<const TraceThread> replicas, std::span<const int64_t> devices);

}  // namespace lockstep::parallel
