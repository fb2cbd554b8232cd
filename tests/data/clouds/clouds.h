// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/data/cloud.h"
#include "lockstep/numerics/random.h"

namespace lockstep::data {

/// Points in a cube of 4 m with two features each; their classes are 0 to 3, a ninth has none.
inline Cloud random_cloud(int64_t points, uint64_t seed) {
  const RandomKey key{seed};
  Cloud cloud{.channels = 2};
  for (int64_t i = 0; i < points; ++i) {
    Point point;
    for (size_t axis = 0; axis < 3; ++axis) point[axis] = static_cast<float>(4 * uniform(key.fold(axis), i) - 2);
    cloud.points.push_back(point);
    for (uint64_t c = 0; c < 2; ++c) cloud.features.push_back(uniform_float(key.fold(3 + c), i));
    cloud.labels.push_back(static_cast<int64_t>(below(key.fold(5), i, 4)) - (below(key.fold(6), i, 9) == 0 ? 104 : 0));
    if (cloud.labels.back() < 0) cloud.labels.back() = -100;
  }
  return cloud;
}

}  // namespace lockstep::data
