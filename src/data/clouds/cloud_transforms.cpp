// SPDX-License-Identifier: Apache-2.0
// Each transform draws from a key of its own: what concerns the whole cloud by small numbers, what concerns point i by
// numbers from i on of a key folded from it.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/cloud.h"
#include "lockstep/numerics/random.h"

namespace lockstep::data {
namespace {

double between(RandomKey key, uint64_t index, double low, double high) {
  return low + (high - low) * uniform(key, index);
}

/// Around the vertical axis through the origin.
void apply(Cloud& cloud, const RandomTurn& step, RandomKey key) {
  const double angle = between(key, 0, -step.degrees, step.degrees) * std::numbers::pi / 180;
  const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
  for (auto& [x, y, z] : cloud.points) {
    const float turned = cosine * x - sine * y;
    y = sine * x + cosine * y;
    x = turned;
  }
}

/// Left and right, and front and back, each by itself.
void apply(Cloud& cloud, const RandomFlip& step, RandomKey key) {
  for (size_t axis = 0; axis < 2; ++axis)
    if (bernoulli(key, axis, step.probability))
      for (Point& point : cloud.points) point[axis] = -point[axis];
}

void apply(Cloud& cloud, const RandomScale& step, RandomKey key) {
  const auto factor = static_cast<float>(between(key, 0, 1 - step.part, 1 + step.part));
  for (Point& point : cloud.points)
    for (float& value : point) value *= factor;
}

void apply(Cloud& cloud, const RandomMove& step, RandomKey key) {
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto shift = static_cast<float>(between(key, axis, -step.metres, step.metres));
    for (Point& point : cloud.points) point[axis] += shift;
  }
}

void apply(Cloud& cloud, const RandomJitter& step, RandomKey key) {
  uint64_t index = 0;
  for (Point& point : cloud.points)
    for (float& value : point) value += static_cast<float>(step.metres * normal(key, index++));
}

/// In the order they are in, those for which keep(i).
template <class Keep>
void keep_points(Cloud& cloud, const Keep& keep) {
  int64_t kept = 0;
  for (int64_t i = 0; i < cloud.size(); ++i) {
    if (!keep(i)) continue;
    cloud.points[kept] = cloud.points[i];
    std::copy_n(cloud.features.begin() + i * cloud.channels, cloud.channels,
                cloud.features.begin() + kept * cloud.channels);
    if (!cloud.labels.empty()) cloud.labels[kept] = cloud.labels[i];
    ++kept;
  }
  cloud.points.resize(kept);
  cloud.features.resize(kept * cloud.channels);
  if (!cloud.labels.empty()) cloud.labels.resize(kept);
}

void apply(Cloud& cloud, const RandomDrop& step, RandomKey key) {
  keep_points(cloud, [&](int64_t i) { return !bernoulli(key, static_cast<uint64_t>(i), step.part); });
}

void apply(Cloud& cloud, const RandomWindow& step, RandomKey key) {
  if (cloud.points.empty()) return;
  const Point middle = cloud.points[below(key, 0, cloud.points.size())];
  const auto inside = [&](int64_t i, size_t axis) {
    return std::abs(static_cast<double>(cloud.points[i][axis]) - middle[axis]) <= step.metres / 2;
  };
  keep_points(cloud, [&](int64_t i) { return inside(i, 0) && inside(i, 1); });
}

/// Contrast and brightness of each channel, and a little noise of each value.
void apply(Cloud& cloud, const Chromatic& step, RandomKey key) {
  const RandomKey noise = key.fold(1);
  for (int64_t c = 0; c < cloud.channels; ++c) {
    const auto contrast = static_cast<float>(between(key, 2 * c, 1 - step.amount, 1 + step.amount));
    const auto shift = static_cast<float>(between(key, 2 * c + 1, -step.amount, step.amount));
    for (int64_t i = 0; i < cloud.size(); ++i) {
      const int64_t at = i * cloud.channels + c;
      const auto grain = static_cast<float>(step.amount * (0.2 * uniform_float(noise, at) - 0.1));
      cloud.features[at] = std::clamp((cloud.features[at] - 0.5f) * contrast + 0.5f + shift + grain, 0.0f, 1.0f);
    }
  }
}

/// Random vectors at the nodes of a lattice over the cloud's box, between which points are moved linearly.
class Lattice {
 public:
  Lattice(const Cloud& cloud, const Elastic& step, RandomKey key) : cell_(static_cast<float>(step.cell)) {
    low_ = cloud.points[0];
    Point high = low_;
    for (const Point& point : cloud.points)
      for (size_t axis = 0; axis < 3; ++axis) {
        low_[axis] = std::min(low_[axis], point[axis]);
        high[axis] = std::max(high[axis], point[axis]);
      }
    double nodes = 1;  // of tiny cells there are more than an int64 holds
    for (size_t axis = 0; axis < 3; ++axis) {
      const float cells = std::floor((high[axis] - low_[axis]) / cell_);
      nodes *= 2.0 + cells;
      require(nodes < 1 << 26, "elastic", "cells of ", step.cell, " m give ", nodes,
              " nodes or more, expected fewer than 2^26: larger cells");
      nodes_[axis] = 2 + static_cast<int64_t>(cells);
    }
    vectors_.resize(3 * static_cast<size_t>(nodes));
    for (size_t i = 0; i < vectors_.size(); ++i) vectors_[i] = static_cast<float>(step.metres * normal(key, i));
  }

  void move(Point& point) const {
    std::array<int64_t, 3> node;
    std::array<float, 3> part;
    for (size_t axis = 0; axis < 3; ++axis) {
      const float place = (point[axis] - low_[axis]) / cell_;
      node[axis] = std::min(static_cast<int64_t>(place), nodes_[axis] - 2);
      part[axis] = place - static_cast<float>(node[axis]);
    }
    Point shift{};
    for (int corner = 0; corner < 8; ++corner) {
      float weight = 1;
      int64_t at = 0;
      for (int axis = 0; axis < 3; ++axis) {
        const int side = corner >> axis & 1;
        weight *= side == 1 ? part[axis] : 1 - part[axis];
        at = at * nodes_[axis] + node[axis] + side;
      }
      for (size_t axis = 0; axis < 3; ++axis) shift[axis] += weight * vectors_[3 * at + axis];
    }
    for (size_t axis = 0; axis < 3; ++axis) point[axis] += shift[axis];
  }

 private:
  float cell_;
  Point low_;
  std::array<int64_t, 3> nodes_;
  std::vector<float> vectors_;
};

void apply(Cloud& cloud, const Elastic& step, RandomKey key) {
  if (cloud.points.empty()) return;
  const Lattice lattice(cloud, step, key);
  for (Point& point : cloud.points) lattice.move(point);
}

void apply(Cloud& cloud, const Custom& step, RandomKey key) {
  const std::array<int64_t, 2> shape{cloud.size(), cloud.channels};
  step.apply(cloud.features, shape, key);
}

/// The mean of the points, seen from above.
std::array<double, 2> middle_of(const Cloud& cloud) {
  std::array<double, 2> sum{};
  for (const Point& point : cloud.points)
    for (size_t axis = 0; axis < 2; ++axis) sum[axis] += point[axis];
  for (double& value : sum) value /= static_cast<double>(cloud.points.size());
  return sum;
}

void add(Cloud& cloud, const Cloud& other) {
  if (other.points.empty()) return;
  const auto to = cloud.points.empty() ? middle_of(other) : middle_of(cloud), from = middle_of(other);
  for (Point point : other.points) {
    for (size_t axis = 0; axis < 2; ++axis) point[axis] += static_cast<float>(to[axis] - from[axis]);
    cloud.points.push_back(point);
  }
  cloud.features.insert(cloud.features.end(), other.features.begin(), other.features.end());
  cloud.labels.insert(cloud.labels.end(), other.labels.begin(), other.labels.end());
}

/// Whether and which other scene: numbers 0 and 1 of the step's key. Its own transforms draw from what is folded of it.
std::optional<int64_t> draw_other(const RandomMix& step, RandomKey key, int64_t id, int64_t count) {
  if (count < 2 || !bernoulli(key, 0, step.probability)) return std::nullopt;
  const auto other = static_cast<int64_t>(below(key, 1, static_cast<uint64_t>(count - 1)));
  return other < id ? other : other + 1;
}

template <class Step>
constexpr bool is_of_clouds = std::is_same_v<Step, RandomMix> ||
                              requires(Cloud& cloud, const Step& step, RandomKey key) {
  apply(cloud, step, key);
};

}  // namespace

void check_for_clouds(const Transforms& transforms) {
  for (const Transform& one : transforms.list())
    std::visit(
        [&]<class Step>(const Step& step) {
          require(is_of_clouds<Step>, "Transforms", "'", Transforms({step}).to_string(),
                  "' is for images, expected of clouds turn, flip, scale, move, jitter, drop, chromatic, elastic, "
                  "window, mix");
        },
        one);
}

std::optional<int64_t> mixed_in(const Transforms& transforms, RandomKey key, int64_t id, int64_t count) {
  for (size_t place = 0; place < transforms.list().size(); ++place)
    if (const auto* mix = std::get_if<RandomMix>(&transforms.list()[place]))
      return draw_other(*mix, key.fold(place), id, count);
  return std::nullopt;
}

void transform(Cloud& cloud, const Transforms& transforms, RandomKey key, const OtherScenes& others) {
  check_for_clouds(transforms);
  const auto& list = transforms.list();
  for (size_t place = 0; place < list.size(); ++place) {
    const RandomKey own = key.fold(place);
    const auto mix = [&](const RandomMix& step) {
      const auto id = draw_other(step, own, others.id, others.count);
      if (!id) return;
      Cloud other = others.read(*id);
      const std::vector<Transform> before(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(place));
      transform(other, before, own.fold(*id));
      add(cloud, other);
    };
    std::visit(
        [&]<class Step>(const Step& step) {
          if constexpr (std::is_same_v<Step, RandomMix>)
            mix(step);
          else if constexpr (is_of_clouds<Step>)
            apply(cloud, step, own);
        },
        list[place]);
  }
}

}  // namespace lockstep::data
