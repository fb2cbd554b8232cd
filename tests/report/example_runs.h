// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/run/run_files.h"

namespace lockstep::report {

/// A run as a training leaves it: 10 epochs of curves, summary, configuration, confusion matrix, samples. The hash is
/// one letter, repeated. No random numbers: the same arguments give the same run.
run::RunData example_run(const std::string& name, const std::string& placement = "2 threads", char hash = 'a');

/// The same of a network of clouds: two scenes, numbers 0 and 7, take the place of samples and confusion.
run::RunData example_cloud_run(const std::string& name);

/// Writes all of a run's files into a folder, which is made.
void write_run(const std::filesystem::path& folder, const run::RunData& run);

}  // namespace lockstep::report
