// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/burn.h"

#include <cmath>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/trials/burn.h"

namespace lockstep::cli {

int burn(double seconds, const comm::Environment& place, std::chrono::milliseconds timeout) {
  require(std::isfinite(seconds) && seconds > 0 && seconds <= 1e6, "selftest", "--burn is ", seconds,
          ", expected seconds, more than 0");
  const auto waiting = timeout + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  const comm::Group group = comm::connect(place, {.timeout = waiting, .name = "burn"});
  const trials::BurnReport report =
      trials::burn({.seconds = seconds, .local_rank = place.local_rank, .local_size = place.local_size}, group);
  group.finish();
  if (group.rank() == 0) {
    std::printf("burn: %lld cores, %lld rounds each: %s\n", static_cast<long long>(report.cores),
                static_cast<long long>(report.rounds), report.is_good() ? "all the same bits" : "the bits differ");
    for (const auto& core : report.wrong)
      std::printf("core %d of %s (rank %d) is wrong in %lld rounds, at first in round %lld: %s\n", core.core,
                  core.host.c_str(), core.rank, static_cast<long long>(core.rounds),
                  static_cast<long long>(core.first_round), core.work.c_str());
    if (report.undecided > 0)
      std::printf(
          "%lld results differ with no value that most cores have: with three cores or more it is known which\n",
          static_cast<long long>(report.undecided));
    std::fflush(stdout);
  }
  return report.is_good() ? 0 : 1;
}

}  // namespace lockstep::cli
