// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// " (did you mean 'run'?)" for "rnu": the candidate with the fewest typing slips, or nothing when none comes close.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace lockstep::cli
