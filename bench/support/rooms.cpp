// SPDX-License-Identifier: Apache-2.0
#include "support/rooms.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace lockstep::bench {
namespace {

using Voxel = std::array<int32_t, 3>;

/// A surface is seldom one voxel thick in a scan: each voxel may have a second one behind it.
class Surface {
 public:
  explicit Surface(uint64_t seed) : random_(seed) {}

  void add(int32_t x, int32_t y, int32_t z, int axis) {
    Voxel voxel{x, y, z};
    voxels_.insert(voxel);
    if (random_() % 2 == 0) return;
    ++voxel[axis];
    voxels_.insert(voxel);
  }
  void box(Voxel low, Voxel high) {
    for (int axis = 0; axis < 3; ++axis) {
      const int a = (axis + 1) % 3, b = (axis + 2) % 3;
      for (const int32_t side : {low[axis], high[axis]})
        for (int32_t u = low[a]; u <= high[a]; ++u)
          for (int32_t v = low[b]; v <= high[b]; ++v) {
            Voxel voxel;
            voxel[axis] = side, voxel[a] = u, voxel[b] = v;
            add(voxel[0], voxel[1], voxel[2], axis);
          }
    }
  }
  int32_t between(int32_t low, int32_t high) { return low + static_cast<int32_t>(random_() % (high - low + 1)); }
  const std::set<Voxel>& voxels() const { return voxels_; }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
  std::set<Voxel> voxels_;
};

Surface build(int32_t size, uint64_t seed) {
  Surface room(seed);
  const int32_t height = size * 2 / 5;
  for (int32_t x = 0; x < size; ++x)
    for (int32_t y = 0; y < size; ++y) room.add(x, y, 0, 2);
  for (int32_t u = 0; u < size; ++u)
    for (int32_t z = 0; z < height; ++z) {
      room.add(u, 0, z, 1), room.add(u, size - 2, z, 1);
      room.add(0, u, z, 0), room.add(size - 2, u, z, 0);
    }
  for (int i = 0; i < 12; ++i) {
    const int32_t width = room.between(size / 10, size / 4), depth = room.between(size / 10, size / 4);
    const int32_t x = room.between(2, size - width - 3), y = room.between(2, size - depth - 3);
    room.box({x, y, 0}, {x + width, y + depth, room.between(height / 5, height / 2)});
  }
  return room;
}

}  // namespace

at::Tensor make_room(int64_t voxels, uint64_t seed, bool shuffled) {
  // The number of voxels grows with the square of the room's size.
  const double probe = static_cast<double>(build(100, seed).voxels().size());
  Surface room = build(static_cast<int32_t>(100 * std::sqrt(static_cast<double>(voxels) / probe)), seed);
  std::vector<Voxel> rows(room.voxels().begin(), room.voxels().end());
  if (shuffled) std::shuffle(rows.begin(), rows.end(), room.random());
  at::Tensor coordinates = at::empty({static_cast<int64_t>(rows.size()), 4}, at::kInt);
  int32_t* out = coordinates.mutable_data_ptr<int32_t>();
  for (const Voxel& voxel : rows) {
    *out++ = 0;
    out = std::copy(voxel.begin(), voxel.end(), out);
  }
  return coordinates;
}

}  // namespace lockstep::bench
