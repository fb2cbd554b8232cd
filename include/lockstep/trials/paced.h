// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/forecast.h"
#include "lockstep/trials/profile.h"

namespace lockstep::trials {

/// A training whose replicas sleep for as long as a profile says that they compute, and really send their gradients. So
/// a machine of a few cores runs the exchanges of many.
struct PacedResult {
  std::vector<double> step_seconds{};  ///< after the first steps, which warm up
  int64_t bytes_sent = 0;              ///< by this process, in a step
};

/// One replica a process of the group. Collective. Throws Error for less than trials::warm_up_steps + 1 steps.
PacedResult run_paced(const Profile& profile, const comm::Group& group, int64_t steps,
                      parallel::Order order = parallel::Order::canonical);

/// The same in virtual time: so many processes with a link each.
parallel::StepForecast forecast_paced(const Profile& profile, int64_t processes, const parallel::LinkCost& link,
                                      parallel::Order order = parallel::Order::canonical);

}  // namespace lockstep::trials
