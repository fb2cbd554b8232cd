// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command.h"

namespace lockstep::cli {

struct InfoOptions {
  bool json = false;
};

/// `lockstep info`: devices, backends, versions, fingerprints and this process's place in its run.
void setup_info(CLI::App& app, Command& chosen);

int info(const InfoOptions& options);

}  // namespace lockstep::cli
