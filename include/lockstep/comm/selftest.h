// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// What one rank saw.
struct SelftestReport {
  int checks = 0;
  std::vector<std::string> failures;  // "all_reduce(sum, Float[15]): element 3 is 1.5, expected 2.5 (4 of 15 differ)"
};

/// Calls every collective with several dtypes and lengths (0 too) and compares what comes back, bit by bit, with what
/// one thread works out from all ranks' inputs. Collective over the group; the tensors are on `device`. Does not
/// throw where a peer fails: that is the last of the failures.
SelftestReport selftest(const Group& group, c10::Device device = c10::kCPU);

}  // namespace lockstep::comm
