// SPDX-License-Identifier: Apache-2.0
// How far a measurement may lie from its forecast.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "lockstep/trials/forecast.h"

namespace lockstep::trials {

/// Standard deviations on each side that hold four of five of a normal distribution.
inline constexpr double kEightyPercent = 1.2816;

/// By how many standard deviations the slowest of so many processes is slower than their mean, by Blom's approximation.
inline double slowest_of(int64_t processes) {
  const double part = (static_cast<double>(processes) - 0.375) / (static_cast<double>(processes) + 0.25);
  double low = -1, high = 9;
  for (int halving = 0; halving < 60; ++halving) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < part ? low : high) = middle;
  }
  return high;
}

/// Of the logarithm of measured over forecast time. What changes from run to run was seen in the profile's rounds. How
/// far the model itself is off, part by part, is estimated: `./dev bench forecast` says how often intervals hold.
inline double deviation_of(const ForecastRow& row, const Profile& profile, bool measured_link) {
  constexpr double kModel = 0.01, kTogether = 0.012, kSplit = 0.05, kBeyond = 0.06;
  constexpr double kThreads = 0.03;                         // of one process
  constexpr double kMeasuredLink = 0.15, kToldLink = 0.25;  // of the time that communication takes
  const double rounds = profile.rounds;
  const double spread = row.threads > 1 ? std::max(profile.spread, profile.thread_spread) : profile.spread;
  double squares = spread * spread * (1 + 1 / rounds) + kModel * kModel;
  const auto add = [&](double part) { squares += part * part; };
  if (row.devices > 1) add(kTogether);
  if (row.threads > 1) add(kThreads);
  if (row.split != "data") add(kSplit);
  if (row.threads > profile.cores) add(kBeyond);
  add((measured_link ? kMeasuredLink : kToldLink) * row.step.communication / row.step.seconds);
  return std::sqrt(squares);
}

}  // namespace lockstep::trials
