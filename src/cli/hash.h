// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command.h"

namespace lockstep::cli {

/// `lockstep hash FILE...`: one SHA-256 over the names, shapes, dtypes and bytes of the weights.
void setup_hash(CLI::App& app, Command& chosen);

}  // namespace lockstep::cli
