// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::report {

/// Where an axis has its marks, and the range that it shows.
struct Ticks {
  double low = 0;
  double high = 1;
  std::vector<double> at = {};
  std::vector<std::string> labels = {};
};

/// At most `most` marks at 1, 2 or 5 times a power of ten, all within [low, high]; low <= high. With `widen` the range
/// grows to the next mark at both ends.
Ticks linear_ticks(double low, double high, int most, bool widen, bool whole = false);

/// For a logarithmic axis, 0 < low <= high: powers of ten, and between them 2 and 5 where there is room.
Ticks log_ticks(double low, double high, int most);

}  // namespace lockstep::report
