// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "crashes/faults.h"

namespace lockstep::crashes {

/// How a process ended in which one call met a fault.
struct Ended {
  std::string result;  // what the work gave
  std::string error;   // or the exception that came out of it
  bool was_killed = false;
  std::string strange;  // it ended in a way that no process should
  int64_t calls = 0;
  std::string met;  // the call that met the fault
};

/// Runs `work` in a process of its own, forked off this one, while calls on files below the folder are watched. This
/// process must have no threads.
Ended run_apart(const std::string& folder, int64_t number, Fault fault, const std::function<std::string()>& work);

}  // namespace lockstep::crashes
