// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transforms.h"
#include "lockstep/numerics/philox.h"

/// Point clouds: examples that differ in size.
namespace lockstep::data {

using Point = std::array<float, 3>;

/// Points of one scene as they were measured, in metres.
struct Cloud {
  std::vector<Point> points{};
  std::vector<float> features{};  ///< of each point: colours in [0, 1], intensities
  int64_t channels = 3;           ///< how many features a point has
  std::vector<int64_t> labels{};  ///< a class, or -100 where nobody knows; or none at all

  int64_t size() const { return static_cast<int64_t>(points.size()); }
};

/// A cloud on a grid. Rows are sorted by coordinate, axis by axis.
struct Voxels {
  at::Tensor coordinates{};  ///< [m, 3] int32: points divided by the voxel's side and rounded down
  at::Tensor features{};     ///< [m, channels] float32: the mean over the voxel's points
  at::Tensor labels{};       ///< [m] int64: the class that most of them have, the lower one of two; -100 without any
  std::vector<int64_t> voxel_of_point{};  ///< the row of each point
};

/// Throws Error where a point is not finite, sizes don't match, or the cloud is more than 2^21 voxels wide.
Voxels voxelise(const Cloud& cloud, double voxel);

/// The data set that a cloud is example `id` of, for a transform that takes another of its scenes.
struct OtherScenes {
  int64_t id = 0;
  int64_t count = 1;
  std::function<Cloud(int64_t id)> read{};
};

/// Transforms of clouds, one after another, drawn from `key` alone: turn, flip, scale, move, jitter, drop, chromatic,
/// elastic, window, mix. Throws Error for one that is of images.
void transform(Cloud& cloud, const Transforms& transforms, RandomKey key, const OtherScenes& others = {});
/// The example, of `count`, that a mix among them adds to example `id`, where the key has it add one.
std::optional<int64_t> mixed_in(const Transforms& transforms, RandomKey key, int64_t id, int64_t count);
/// Throws Error as transform does.
void check_for_clouds(const Transforms& transforms);

/// Scenes by number; info() has the side of a voxel, the channels of a point as input_shape, one target a point, or
/// one a cloud. read(), which is for examples of one size, throws Error; a Loader reads clouds by itself.
class CloudDataset : public Dataset {
 public:
  /// As measured. Throws Error as Dataset::read does.
  Cloud read_cloud(int64_t id) const;
  /// About how many voxels it will have: known without reading it, the same for all who ask. At least 1.
  virtual int64_t cost(int64_t id) const = 0;
  /// What decides the bits of this cloud, the program aside: its files with their sizes and times, or seeds and sizes.
  /// Empty where nobody can say; it is not cached then.
  virtual std::string source(int64_t /*id*/) const { return {}; }
  /// The class of the whole cloud, where info().whole_clouds.
  virtual int64_t label(int64_t /*id*/) const { return kIgnore; }
  /// Throws Error: what is done to features belongs to the data set.
  Normalization normalization() const override;

 protected:
  explicit CloudDataset(DatasetInfo info);
  virtual Cloud measure(int64_t id) const = 0;
  void read_inputs(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs) const override;
  void fetch_targets(std::span<const int64_t> ids, int64_t* targets) const override;
};

}  // namespace lockstep::data
