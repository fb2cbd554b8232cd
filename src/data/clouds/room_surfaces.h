// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/data/cloud.h"
#include "lockstep/numerics/philox.h"
#include "lockstep/numerics/random.h"

// What synthetic rooms are made of: flat pieces of surface with a class and a colour.
namespace lockstep::data {

enum class RoomClass : uint8_t { floor, ceiling, wall, table, chair, lamp, shelf, box };
inline constexpr std::array<const char*, 8> kRoomClasses{"floor", "ceiling", "wall",  "table",
                                                         "chair", "lamp",    "shelf", "box"};

/// Numbers one after another of a key.
class Draws {
 public:
  explicit Draws(RandomKey key) : key_(key) {}
  double between(double low, double high) { return low + (high - low) * uniform(key_, index_++); }
  int64_t integer(int64_t low, int64_t high) {  // both ends can come
    return low + static_cast<int64_t>(below(key_, index_++, static_cast<uint64_t>(high - low + 1)));
  }
  bool coin(double probability) { return bernoulli(key_, index_++, probability); }

 private:
  RandomKey key_;
  uint64_t index_ = 0;
};

/// The parallelogram of origin + u a + v b, u and v in [0, 1].
struct Surface {
  Point origin, a, b;
  RoomClass label;
  Point colour;
  double area() const;
};

/// A place on the floor, and the direction that is ahead there.
struct Pose {
  double x, y, angle;
  /// From what lies `right` and `ahead` of it, at a height.
  Point at(double right, double ahead, double height) const;
};

/// Surfaces put together; every piece of furniture stands in a pose. Sizes are in metres.
class RoomBuilder {
 public:
  RoomBuilder(double width, double depth, double height, Draws& draws);

  void table(const Pose& pose);
  void chair(const Pose& pose);
  void shelf(const Pose& pose);
  void box(const Pose& pose, double floor);
  void floor_lamp(const Pose& pose);
  void ceiling_lamp(const Pose& pose);

  const std::vector<Surface>& surfaces() const { return surfaces_; }

 private:
  struct Extent {
    double low, high;
  };
  /// The six sides of a box whose extents are to the right, ahead and upwards.
  void block(const Pose& pose, Extent right, Extent ahead, Extent up, RoomClass label, const Point& colour);
  /// The mantle of a prism with eight sides, and its top.
  void pillar(const Pose& pose, double radius, Extent up, RoomClass label, const Point& colour);
  void shell(double width, double depth);
  Point wood();
  Point paint();

  double height_;
  Draws& draws_;
  std::vector<Surface> surfaces_;
};

}  // namespace lockstep::data
