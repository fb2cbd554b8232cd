// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

#include "lockstep/comm/error.h"

namespace lockstep::comm::test {

inline void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Checks that body() throws a CommError within `seconds` that blames this rank.
inline void expect_failure(const std::function<void()>& body, int culprit, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  try {
    body();
  } catch (const CommError& error) {
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check(error.rank() == culprit, "expected to blame rank " + std::to_string(culprit) + ", got: " + error.what());
    check(took < seconds, "took " + std::to_string(took) + " s");
    return;
  }
  throw std::runtime_error("expected a CommError");
}

}  // namespace lockstep::comm::test
