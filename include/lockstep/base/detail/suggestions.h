// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// What an error says about a name that is not known.
namespace lockstep {

/// " (did you mean 'run'?)" for "rnu": the candidate with the fewest typing slips, or nothing when none comes close.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

/// "a, b or c".
std::string one_of(const std::vector<std::string>& names);

}  // namespace lockstep
