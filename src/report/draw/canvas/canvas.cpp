// SPDX-License-Identifier: Apache-2.0
#include "report/draw/canvas/canvas.h"

#include <algorithm>
#include <cmath>

namespace lockstep::report {

std::vector<std::vector<Point>> dashes_of(std::span<const Point> points, double on, double off) {
  std::vector<std::vector<Point>> dashes;
  if (points.empty()) return dashes;
  bool drawn = true;
  double left = on;  // of the dash or gap that we are in
  dashes.push_back({points[0]});
  for (size_t i = 1; i < points.size(); ++i) {
    const Point from = points[i - 1], to = points[i];
    const double length = std::hypot(to.x - from.x, to.y - from.y);
    double done = 0;
    while (length - done > left) {
      done += left;
      const Point at{from.x + (to.x - from.x) * done / length, from.y + (to.y - from.y) * done / length};
      if (drawn)
        dashes.back().push_back(at);
      else
        dashes.push_back({at});
      drawn = !drawn;
      left = drawn ? on : off;
    }
    left -= length - done;
    if (drawn) dashes.back().push_back(to);
  }
  return dashes;
}

}  // namespace lockstep::report
