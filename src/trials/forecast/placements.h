// SPDX-License-Identifier: Apache-2.0
// Which placements a forecast looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/trials/forecast.h"

namespace lockstep::trials {

struct Hosts {
  int64_t hosts = 0;  ///< at most; 0: any number
  int64_t devices = 1;
};

/// Of ForecastOptions::hosts. Throws Error.
Hosts hosts_of(const ForecastOptions& options, int64_t cores);

/// Devices, processes, threads, split ("auto" still), replicas and batch of each row, in the order of the options.
/// Splits that need more threads than there are have no row.
std::vector<ForecastRow> placements_of(const ForecastOptions& options, const Hosts& hosts);

}  // namespace lockstep::trials
