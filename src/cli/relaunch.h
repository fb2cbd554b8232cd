// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::cli {

/// How many GPUs these devices are, where this process is alone: a process computes on one GPU, so more need as many
/// processes. 0 for CPUs, and in a job that a launcher has started.
int gpus_of_one_process(const std::string& devices);

/// Starts this very command once for each of so many processes, as `lockstep run -n` does, and returns its exit code.
int relaunch(int processes);

}  // namespace lockstep::cli
