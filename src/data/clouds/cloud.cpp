// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/cloud.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "lockstep/base/detail/radix_sort.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr int kAxisBits = 21;  // of a coordinate at most: three are one key of 64

struct Keyed {
  uint64_t key;
  int64_t point;
};

/// Cells of a cloud as keys whose order is theirs, axis by axis.
class Cells {
 public:
  /// Throws Error where a cell is too far from 0 or from another.
  Cells(const Cloud& cloud, double voxel) : cells_(cloud.points.size()) {
    for (int64_t i = 0; i < cloud.size(); ++i)
      for (size_t axis = 0; axis < 3; ++axis) {
        const double at = static_cast<double>(cloud.points[i][axis]) / voxel;
        require(std::abs(at) < 1e9, "voxelise", "point ", i, " has the coordinate ", cloud.points[i][axis],
                ", expected one within 1e9 voxels of 0");
        const auto toward_zero = static_cast<int32_t>(at);
        const int32_t cell = toward_zero - (at < toward_zero ? 1 : 0);
        low_[axis] = i == 0 ? cell : std::min(low_[axis], cell);
        high_[axis] = i == 0 ? cell : std::max(high_[axis], cell);
        cells_[i][axis] = cell;
      }
    for (size_t axis = 3; axis-- > 0;) {
      const auto extent = static_cast<uint64_t>(int64_t{high_[axis]} - low_[axis]);
      require(extent < uint64_t{1} << kAxisBits, "voxelise", "the cloud is ", extent + 1,
              " voxels wide, expected at most ", int64_t{1} << kAxisBits, ": larger voxels");
      shift_[axis] = bits_;
      bits_ += std::bit_width(extent);
    }
  }

  /// Sorted by cell; points of one cell in their own order.
  std::vector<Keyed> sorted() const {
    std::vector<Keyed> keyed(cells_.size());
    for (size_t i = 0; i < cells_.size(); ++i) {
      uint64_t key = 0;
      for (size_t axis = 0; axis < 3; ++axis)
        key |= static_cast<uint64_t>(cells_[i][axis] - low_[axis]) << shift_[axis];
      keyed[i] = {key, static_cast<int64_t>(i)};
    }
    radix_sort(keyed, 0, bits_, [](const Keyed& item, int bit) { return static_cast<uint32_t>(item.key >> bit); });
    return keyed;
  }

  const std::array<int32_t, 3>& cell_of(const Keyed& item) const { return cells_[item.point]; }

 private:
  std::vector<std::array<int32_t, 3>> cells_;
  std::array<int32_t, 3> low_{}, high_{};
  std::array<int, 3> shift_{};
  int bits_ = 0;
};

/// The class that most of these points have.
int64_t majority(const Cloud& cloud, std::span<const Keyed> points, std::vector<int64_t>& labels) {
  if (cloud.labels.empty()) return kIgnore;
  labels.clear();
  for (const Keyed& point : points)
    if (cloud.labels[point.point] >= 0) labels.push_back(cloud.labels[point.point]);
  std::ranges::sort(labels);
  int64_t best = kIgnore;
  std::ptrdiff_t most = 0;
  for (auto run = labels.begin(); run != labels.end();) {
    const auto end = std::upper_bound(run, labels.end(), *run);
    if (end - run > most) {
      best = *run;
      most = end - run;
    }
    run = end;
  }
  return best;
}

/// The mean of the features of these points, added up in their order.
void average(const Cloud& cloud, std::span<const Keyed> points, float* out) {
  for (int64_t c = 0; c < cloud.channels; ++c) {
    double sum = 0;
    for (const Keyed& point : points) sum += cloud.features[point.point * cloud.channels + c];
    out[c] = static_cast<float>(sum / static_cast<double>(points.size()));
  }
}

}  // namespace

Voxels voxelise(const Cloud& cloud, double voxel) {
  require(std::isfinite(voxel) && voxel > 0, "voxelise", "the voxel's side is ", voxel, ", expected it above 0");
  require(static_cast<int64_t>(cloud.features.size()) == cloud.size() * cloud.channels &&
              (cloud.labels.empty() || cloud.labels.size() == cloud.points.size()),
          "voxelise", cloud.size(), " points have ", cloud.features.size(), " features and ", cloud.labels.size(),
          " labels, expected ", cloud.channels, " features and one label each, or no labels");
  const Cells cells(cloud, voxel);
  const auto keyed = cells.sorted();
  std::vector<size_t> begins;
  for (size_t i = 0; i < keyed.size(); ++i)
    if (i == 0 || keyed[i].key != keyed[i - 1].key) begins.push_back(i);
  const auto rows = static_cast<int64_t>(begins.size());
  begins.push_back(keyed.size());
  Voxels out{.coordinates = at::empty({rows, 3}, at::kInt),
             .features = at::empty({rows, cloud.channels}, at::kFloat),
             .labels = at::empty({rows}, at::kLong),
             .voxel_of_point = std::vector<int64_t>(cloud.points.size())};
  auto* coordinates = out.coordinates.mutable_data_ptr<int32_t>();
  auto* features = out.features.mutable_data_ptr<float>();
  auto* labels = out.labels.mutable_data_ptr<int64_t>();
  std::vector<int64_t> scratch;
  for (int64_t row = 0; row < rows; ++row) {
    const auto points = std::span(keyed).subspan(begins[row], begins[row + 1] - begins[row]);
    std::ranges::copy(cells.cell_of(points[0]), coordinates + 3 * row);
    average(cloud, points, features + row * cloud.channels);
    labels[row] = majority(cloud, points, scratch);
    for (const Keyed& point : points) out.voxel_of_point[point.point] = row;
  }
  return out;
}

CloudDataset::CloudDataset(DatasetInfo info) : Dataset(std::move(info)) {
  require(this->info().voxel > 0 && this->info().input_shape.size() == 1 && this->info().target_shape.empty(),
          "CloudDataset", this->info().name, " has voxels of ", this->info().voxel, " and inputs of shape ",
          c10::IntArrayRef(this->info().input_shape), ", expected voxels above 0 and one number of channels");
}

Cloud CloudDataset::read_cloud(int64_t id) const {
  check("CloudDataset::read_cloud", {&id, 1});
  return measure(id);
}

Normalization CloudDataset::normalization() const {
  fail("normalization", info().name, " has clouds of points, expected images: leave normalize out");
}

void CloudDataset::read_inputs(std::span<const int64_t> /*ids*/, Layout /*layout*/, Affine /*affine*/,
                               float* /*inputs*/) const {
  fail("Dataset::read", info().name, " has clouds that differ in size, expected read_cloud or a Loader");
}

void CloudDataset::fetch_targets(std::span<const int64_t> ids, int64_t* targets) const {
  if (info().whole_clouds)
    for (const int64_t id : ids) *targets++ = label(id);
  else
    fail("Dataset::read_targets", info().name, " has a target for each point, expected read_cloud or a Loader");
}

}  // namespace lockstep::data
