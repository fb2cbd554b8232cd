// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::bench {

/// How many copies of its inputs a benchmark goes through in turn, so that none is in the cache of the GPU from the
/// call before.
inline constexpr int kCopies = 4;
/// And how many calls, one behind another, are a turn.
inline constexpr int kCalls = 8;

/// What is measured, and what it is measured against. `run` is given the number of a copy, in [0, kCopies), and only
/// enqueues work on the current stream.
struct Contender {
  std::string name;
  std::function<void(int copy)> run;
};

/// The median milliseconds of a call of each, by the GPU's clock. They take turns; each turn is some calls one behind
/// another, so that launching does not count where the GPU has more to do than the host. A contender that throws is
/// told by name and has NaN.
std::vector<double> milliseconds(const std::vector<Contender>& contenders, int rounds);

/// Prints a line for each contender, the first being ours, with `work` (billions of operations, or GB) a second, and
/// writes them down: {"ours": {"ms": 1, "per_second": 2}, ...}.
nlohmann::json compare(const std::string& title, const char* unit, double work,
                       const std::vector<Contender>& contenders, int rounds);

}  // namespace lockstep::bench
