// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::launch {

/// A process that outlives the launcher, however that ends, and then kills what the launcher's ranks have left: every
/// process whose environment holds `marker` ("LOCKSTEP_RUN=..."), their children's children too.
class Guard {
 public:
  /// Forks: call it while this process has one thread.
  explicit Guard(const std::string& marker);
  ~Guard() { finish(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// Kills what is left now and returns how many processes that were (255 for more).
  int finish() noexcept;

 private:
  Descriptor alive_;  // the guard's other end sees the end of this process
  pid_t process_ = -1;
};

}  // namespace lockstep::launch
