// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// What `lockstep run --survive` and its ranks tell each other through the stores of the launchers.
namespace lockstep::comm::members {

/// In the environment of ranks that are told who is left: the port of their own launcher's store, on this host.
inline constexpr const char* variable = "LOCKSTEP_SURVIVE";
/// In that of a process that takes the place of a lost one.
inline constexpr const char* newcomer_variable = "LOCKSTEP_NEWCOMER";
/// The key under which the launcher says who the members are.
inline constexpr const char* key = "lockstep/members";
/// The key under which the work is said to be done.
inline constexpr const char* done_key = "lockstep/done";

/// Those who work together from some moment on. Each change has the next number.
struct Generation {
  int number = 0;
  bool enough = true;  ///< false: too few are left to go on, and they end with a checkpoint
  std::vector<int> ranks;
  std::string run = {};         ///< tells it apart from runs before it that had the same store's address
  std::string store_host = {};  ///< of the store where they meet; empty: that of their own launcher
  int store_port = 0;
};

std::string to_text(const Generation& generation);
Generation parse(const std::string& text);

/// The key with which a newcomer says that it is ready to work.
std::string ready_key(int rank, int process);

/// The key with which a member says that a generation's group has come apart, though nobody was lost.
std::string again_key(int generation);

/// What a run ends with that has too few ranks left: as sysexits.h has it, trying again may help.
inline constexpr int too_few_exit_code = 75;

}  // namespace lockstep::comm::members
