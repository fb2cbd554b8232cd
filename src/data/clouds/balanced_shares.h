// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// Which examples of a batch each of so many shares takes, so that shares cost about the same, and so do the halves of
/// the list of shares, its quarters, and so on: whichever replicas a device runs, devices wait little for each other. A
/// share's examples are in the order of the batch. It depends on the costs and nothing else. Where there are fewer
/// examples than shares some are empty.
std::vector<std::vector<int64_t>> balanced_shares(std::span<const int64_t> costs, int64_t shares);

}  // namespace lockstep::data
