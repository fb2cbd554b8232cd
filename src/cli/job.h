// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "lockstep/comm/group.h"

namespace lockstep::cli {

/// What `find` says on process 0, on all processes; an Error there is thrown on all. Collective.
std::string from_leader(const comm::Group& group, const std::function<std::string()>& find);

/// How many GPUs these devices are, where this process is alone: a process computes on one GPU, so more need as many
/// processes. 0 for CPUs, and in a job that a launcher has started.
int gpus_of_one_process(const std::string& devices);

/// Starts this very command once for each of so many processes, as `lockstep run -n` does, and returns its exit code.
int relaunch(int processes);

}  // namespace lockstep::cli
