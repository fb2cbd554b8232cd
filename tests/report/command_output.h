// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace lockstep::report {

struct CommandOutput {
  int exit_code = -1;  // -1: ended by a signal
  std::string text = {};
};

/// What a command of the shell writes to its standard output. Tests write the command: no outside text is in it.
inline CommandOutput output_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");  // NOLINT(bugprone-command-processor)
  CommandOutput output;
  if (pipe == nullptr) return output;
  char bytes[4096];
  for (size_t count; (count = fread(bytes, 1, sizeof bytes, pipe)) > 0;) output.text.append(bytes, count);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) output.exit_code = WEXITSTATUS(status);
  return output;
}

}  // namespace lockstep::report
