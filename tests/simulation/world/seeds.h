// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <cstdint>
#include <cstdlib>
#include <optional>

namespace lockstep::simulation {

/// A number in the environment.
inline std::optional<uint64_t> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional<uint64_t>(std::strtoull(text, nullptr, 10));
}

/// One thread runs at a time: on one core the next one begins sooner.
inline void stay_on_one_core() {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(sched_getcpu(), &core);
  sched_setaffinity(0, sizeof core, &core);
}

}  // namespace lockstep::simulation
