// SPDX-License-Identifier: Apache-2.0
// Synthetic rooms. Surfaces are strewn with points, four a voxel; a scanner stands in a few places, and what it sees
// from none of them is left out; what is left has noise in place and colour. All is drawn from (seed, split, scene).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "data/clouds/room_surfaces.h"
#include "lockstep/base/detail/digits.h"
#include "lockstep/base/error.h"
#include "lockstep/data/cloud.h"
#include "lockstep/data/registry.h"

namespace lockstep::data {
namespace {

constexpr int64_t kScenes = 512;
constexpr double kMetres = 4.5;
constexpr double kPointsPerVoxel = 4;
constexpr uint64_t kRoomStream = 0x726F6F6D73;  // "rooms"

/// Furniture that stands on the floor keeps off what stands there already.
class Floor {
 public:
  Floor(double width, double depth) : width_(width), depth_(depth) {}
  /// A free place for something of this radius. None where a dozen tries find none.
  std::optional<Pose> find(double radius, Draws& draws) {
    for (int attempt = 0; attempt < 12; ++attempt) {
      const Pose pose{draws.between(radius, width_ - radius), draws.between(radius, depth_ - radius),
                      draws.between(0, 2 * std::numbers::pi)};
      const bool free = std::ranges::none_of(taken_, [&](const auto& other) {
        return std::hypot(other.x - pose.x, other.y - pose.y) < other.radius + radius;
      });
      if (!free) continue;
      taken_.push_back({pose.x, pose.y, radius});
      return pose;
    }
    return std::nullopt;
  }

 private:
  struct Taken {
    double x, y, radius;
  };
  double width_, depth_;
  std::vector<Taken> taken_;
};

/// A pose beside a wall, its back to it.
Pose beside_wall(double width, double depth, double distance, Draws& draws) {
  const double quarter = std::numbers::pi / 2;
  switch (draws.integer(0, 3)) {
    case 0:
      return {draws.between(0.6, width - 0.6), distance, 0};
    case 1:
      return {width - distance, draws.between(0.6, depth - 0.6), quarter};
    case 2:
      return {draws.between(0.6, width - 0.6), depth - distance, 2 * quarter};
    default:
      return {distance, draws.between(0.6, depth - 0.6), 3 * quarter};
  }
}

struct Room {
  std::vector<Surface> surfaces;
  std::vector<Point> views;  ///< where the scanner stood
};

Room build_room(RandomKey key, double metres) {
  Draws draws(key.fold(0));
  const double width = metres * draws.between(0.75, 1.25), depth = metres * draws.between(0.75, 1.25),
               height = draws.between(2.3, 3.0);
  RoomBuilder builder(width, depth, height, draws);
  Floor floor(width, depth);
  const auto furnish = [&](int64_t count, double radius, auto build) {
    for (int64_t i = 0; i < count; ++i)
      if (const auto pose = floor.find(radius, draws)) build(*pose);
  };
  const auto many = static_cast<int64_t>(width * depth / 10);  // pieces of a kind, in a room of that size
  for (int64_t i = draws.integer(1, 2); i > 0; --i) builder.shelf(beside_wall(width, depth, 0.22, draws));
  furnish(draws.integer(1, std::max<int64_t>(1, many / 2)), 0.9, [&](const Pose& pose) { builder.table(pose); });
  furnish(draws.integer(1, 1 + many), 0.35, [&](const Pose& pose) { builder.chair(pose); });
  furnish(draws.integer(1, 1 + many), 0.4, [&](const Pose& pose) { builder.box(pose, 0); });
  furnish(draws.integer(0, 1), 0.25, [&](const Pose& pose) { builder.floor_lamp(pose); });
  for (int64_t i = draws.integer(1, 2); i > 0; --i)
    builder.ceiling_lamp({draws.between(0.5, width - 0.5), draws.between(0.5, depth - 0.5), 0});
  Room room{builder.surfaces(), {}};
  for (int64_t i = draws.integer(2, 4); i > 0; --i)
    room.views.push_back(
        Pose{draws.between(0.4, width - 0.4), draws.between(0.4, depth - 0.4), 0}.at(0, 0, draws.between(1.2, 1.8)));
  return room;
}

double area_of(const Room& room) {
  return std::accumulate(room.surfaces.begin(), room.surfaces.end(), 0.0,
                         [](double sum, const Surface& surface) { return sum + surface.area(); });
}

/// Marks the points that a scanner sees from there: on each cell of a cube's faces around it the nearest one, and what
/// is hardly behind it.
void mark_seen(const Point& eye, const std::vector<Point>& points, std::vector<char>& seen) {
  constexpr int kSide = 160;
  struct Ray {
    uint32_t cell;
    float depth;
  };
  std::vector<Ray> rays(points.size());
  std::vector<float> nearest(6 * kSide * kSide, 1e9f);
  for (size_t p = 0; p < points.size(); ++p) {
    Point ray;
    size_t axis = 0;
    for (size_t i = 0; i < 3; ++i) {
      ray[i] = points[p][i] - eye[i];
      if (std::abs(ray[i]) > std::abs(ray[axis])) axis = i;
    }
    const float depth = std::max(std::abs(ray[axis]), 1e-6f);
    const auto cell = [&](size_t i) {
      return std::min(static_cast<uint32_t>((ray[i] / depth + 1) * (kSide / 2.0f)), uint32_t{kSide - 1});
    };
    const auto face = static_cast<uint32_t>(2 * axis + (ray[axis] > 0 ? 1 : 0));
    rays[p] = {(face * kSide + cell((axis + 1) % 3)) * kSide + cell((axis + 2) % 3), depth};
    nearest[rays[p].cell] = std::min(nearest[rays[p].cell], depth);
  }
  for (size_t p = 0; p < points.size(); ++p)
    if (rays[p].depth <= nearest[rays[p].cell] * 1.03f + 0.05f) seen[p] = 1;
}

struct Strewn {
  std::vector<Point> points;
  std::vector<const Surface*> of;
};

Strewn strew(const Room& room, RandomKey key, double per_square_metre) {
  Strewn out;
  uint64_t index = 0;
  for (const Surface& surface : room.surfaces) {
    const auto count = static_cast<int64_t>(std::ceil(surface.area() * per_square_metre));
    for (int64_t i = 0; i < count; ++i) {
      const float u = uniform_float(key, index++), v = uniform_float(key, index++);
      Point point;
      for (size_t axis = 0; axis < 3; ++axis)
        point[axis] = surface.origin[axis] + (u * surface.a[axis] + v * surface.b[axis]);
      out.points.push_back(point);
      out.of.push_back(&surface);
    }
  }
  return out;
}

/// Noise that is nearly normal, of variance 1, and cheap: the sum of the four bytes of a word.
float noise(uint32_t word) {
  const auto sum = static_cast<float>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24));
  return (sum - 510) / 147.8f;
}

Cloud scan(const Room& room, RandomKey key, double voxel) {
  const Strewn all = strew(room, key.fold(1), kPointsPerVoxel / (voxel * voxel));
  std::vector<char> seen(all.points.size(), 0);
  for (const Point& eye : room.views) mark_seen(eye, all.points, seen);
  const RandomKey noises = key.fold(2);
  const float spread = 0.006f;
  Cloud cloud;
  for (size_t i = 0; i < all.points.size(); ++i) {
    if (seen[i] == 0) continue;
    const PhiloxBlock places = noises.block(2 * i), colours = noises.block(2 * i + 1);
    Point point = all.points[i];
    for (size_t axis = 0; axis < 3; ++axis) {
      point[axis] += spread * noise(places.word[axis]);
      cloud.features.push_back(std::clamp(all.of[i]->colour[axis] + 0.05f * noise(colours.word[axis]), 0.0f, 1.0f));
    }
    cloud.points.push_back(point);
    cloud.labels.push_back(static_cast<int64_t>(all.of[i]->label));
  }
  return cloud;
}

class Rooms : public CloudDataset {
 public:
  Rooms(DatasetInfo info, RandomKey key, double metres) : CloudDataset(std::move(info)), key_(key), metres_(metres) {}

  std::string source(int64_t id) const override {
    return text("rooms ", key_.seed, " ", key_.stream, " ", id, " ", digits_of(metres_), " ", digits_of(info().voxel));
  }

  int64_t cost(int64_t id) const override {
    const double voxel = info().voxel;
    return 1 + static_cast<int64_t>(area_of(build_room(key_.fold(id), metres_)) / (voxel * voxel));
  }

 protected:
  Cloud measure(int64_t id) const override {
    const RandomKey key = key_.fold(id);
    return scan(build_room(key, metres_), key, info().voxel);
  }

 private:
  RandomKey key_;
  double metres_;
};

template <class Number>
Number number_in(std::string_view word, std::string_view spec, double least, double most) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  require(error == std::errc() && end == word.data() + word.size() && value >= least && value <= most, "open_dataset",
          "got 'rooms:", spec, "', expected rooms:SCENES or rooms:SCENES:METRES such as rooms:512:4.5, with a side of ",
          "3 to 100 metres");
  return value;
}

DatasetPointer open_rooms(std::string_view spec, Subset subset, const DatasetOptions& options) {
  require(options.voxel >= 0.005 && options.voxel <= 1, "open_dataset", "voxels of rooms are ", options.voxel,
          " m, expected 0.005 to 1");
  const size_t colon = spec.find(':');
  const int64_t scenes = spec.empty() ? kScenes : number_in<int64_t>(spec.substr(0, colon), spec, 1, 1e9);
  const double metres =
      colon == std::string_view::npos ? kMetres : number_in<double>(spec.substr(colon + 1), spec, 3, 100);
  DatasetInfo info{.name = "rooms",
                   .size = subset == Subset::train ? scenes : std::max<int64_t>(1, scenes / 8),
                   .input_shape = {3},
                   .classes = static_cast<int64_t>(kRoomClasses.size()),
                   .class_names = {kRoomClasses.begin(), kRoomClasses.end()},
                   .voxel = options.voxel};
  const RandomKey key = RandomKey{options.seed, kRoomStream}.fold(static_cast<uint64_t>(subset));
  return std::make_shared<Rooms>(std::move(info), key, metres);
}

}  // namespace

DatasetKind rooms_kind() {
  return {.name = "rooms",
          .usage = "rooms[:SCENES[:METRES]]",
          .description = "synthetic rooms with sides of about METRES, as a scanner sees them, keyed by the seed",
          .clouds = true,
          .open = open_rooms};
}

}  // namespace lockstep::data
