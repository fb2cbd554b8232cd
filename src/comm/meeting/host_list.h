// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::comm {

/// Expands Slurm's short form of a list of hosts: "gpu[01-03,7],login1" is gpu01, gpu02, gpu03, gpu7, login1. A name
/// may hold several brackets. Throws Error naming `operation` and `variable` when the text is no such list.
std::vector<std::string> expand_host_list(const char* operation, const std::string& variable, const std::string& text);

/// Expands Slurm's short form of counts, one a host: "4(x2),3" is 4, 4, 3.
std::vector<int> expand_counts(const char* operation, const std::string& variable, const std::string& text);

}  // namespace lockstep::comm
