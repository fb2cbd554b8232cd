// SPDX-License-Identifier: Apache-2.0
#include "report/draw/ticks.h"

#include <algorithm>
#include <cmath>

#include "lockstep/report/format.h"

namespace lockstep::report {
namespace {

// The smallest of 1, 2, 5 times a power of ten that is at least `step`.
double nice_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1., 2., 5.})
    if (power * factor >= step * (1 - 1e-9)) return power * factor;
  return power * 10;
}

int digits_after_point(double step) {
  return std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 12);
}

// 0.02 is 2 times ten to the -2.
int power_of(double value) {
  return static_cast<int>(std::floor(std::log10(value) + 1e-9));
}

// All labels of an axis have the same unit and the same number of digits: those that its step needs.
std::vector<std::string> labels_of(const std::vector<double>& at, double step) {
  double largest = 0;
  for (const double value : at) largest = std::max(largest, std::abs(value));
  const bool tiny = largest < 1e-3;
  const auto [unit, name] = largest >= 1e13   ? std::pair(1e12, "T")
                            : largest >= 1e10 ? std::pair(1e9, "G")
                            : largest >= 1e7  ? std::pair(1e6, "M")
                            : largest >= 1e4  ? std::pair(1e3, "k")
                                              : std::pair(1., "");
  std::vector<std::string> labels;
  for (const double value : at) {
    if (value == 0 && (tiny || unit > 1))
      labels.emplace_back("0");
    else if (tiny)
      labels.push_back(compact(value, std::max(1, power_of(largest) - power_of(step) + 1)));
    else
      labels.push_back(fixed(value / unit, digits_after_point(step / unit)) + name);
  }
  return labels;
}

// A range that has some width, around the only value there is.
void open_up(double& low, double& high) {
  if (high - low > 1e-9 * std::max(std::abs(low), std::abs(high))) return;
  const double half = low == 0 ? 0.5 : std::abs(low) * 0.1;
  low -= half;
  high += half;
}

}  // namespace

Ticks linear_ticks(double low, double high, int most, bool widen, bool whole) {
  open_up(low, high);
  double step = nice_step((high - low) / std::max(1, most));
  if (whole) step = std::max(1., step);
  const auto first_at = [&] { return widen ? std::floor(low / step + 1e-6) : std::ceil(low / step - 1e-6); };
  const auto last_at = [&] { return widen ? std::ceil(high / step - 1e-6) : std::floor(high / step + 1e-6); };
  while (last_at() - first_at() > most) step = nice_step(step * 1.5);
  Ticks ticks{low, high};
  const auto marks = static_cast<int>(last_at() - first_at()) + 1;
  for (int i = 0; i < marks; ++i) ticks.at.push_back((first_at() + i) * step + 0.0);  // no -0
  if (widen) {
    ticks.low = std::min(low, ticks.at.front());
    ticks.high = std::max(high, ticks.at.back());
  }
  ticks.labels = labels_of(ticks.at, step);
  return ticks;
}

Ticks log_ticks(double low, double high, int most) {
  if (high / low < 1.5) {
    low /= 1.5;
    high *= 1.5;
  }
  Ticks ticks{low, high};
  const double decades = std::log10(high / low);
  const int first = static_cast<int>(std::floor(std::log10(low))), last = static_cast<int>(std::ceil(std::log10(high)));
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / std::max(1, most))));
  std::vector<double> factors{1};
  if (3 * decades <= most)
    factors = {1, 2, 5};
  else if (2 * decades <= most)
    factors = {1, 3};
  for (int power = first; power <= last; power += stride)
    for (const double factor : factors) {
      const double value = factor * std::pow(10, power);
      if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9)) continue;
      ticks.at.push_back(value);
      ticks.labels.push_back(value >= 1e4 && value < 1e13 ? short_number(value) : compact(value, 2));
    }
  return ticks;
}

}  // namespace lockstep::report
