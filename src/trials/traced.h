// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/trials/trial.h"

namespace lockstep::trials {

/// The steps of all traces in a folder: of each process of one host a file. Without the warm-up and the last one, whose
/// end nobody marks.
std::vector<TracedStep> read_traces(const std::filesystem::path& folder);

}  // namespace lockstep::trials
