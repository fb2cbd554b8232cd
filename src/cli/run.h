// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace lockstep::cli {

/// `lockstep run -n 4 -- program args...`: starts the ranks of one host and stays until they have ended.
void setup_run(CLI::App& app, Command& chosen, const std::vector<std::string>& program);

}  // namespace lockstep::cli
