// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lockstep::data {

using test::error_of;
using test::TemporaryFolder;

using Bytes = std::vector<uint8_t>;

inline Bytes first(const Bytes& bytes, size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Runs a program to its end; whether that was 0.
inline bool succeeds(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  int status = -1;
  return posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) == 0 &&
         waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace lockstep::data
