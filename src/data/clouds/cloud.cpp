// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/cloud.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/clouds/clouds.h"
#include "lockstep/base/error.h"
#include "lockstep/points/detail/cells.h"

namespace lockstep::data {
namespace {

/// The class that most of these points have.
int64_t majority(const Cloud& cloud, std::span<const int32_t> points, std::vector<int64_t>& labels) {
  if (cloud.labels.empty()) return kIgnore;
  labels.clear();
  for (const int32_t point : points)
    if (cloud.labels[point] >= 0) labels.push_back(cloud.labels[point]);
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
void average(const Cloud& cloud, std::span<const int32_t> points, float* out) {
  for (int64_t c = 0; c < cloud.channels; ++c) {
    double sum = 0;
    for (const int32_t point : points) sum += cloud.features[point * cloud.channels + c];
    out[c] = static_cast<float>(sum / static_cast<double>(points.size()));
  }
}

/// Clouds whose example i is another data set's example i, as far as it goes.
class CloudPrefix : public CloudDataset {
 public:
  CloudPrefix(std::shared_ptr<const CloudDataset> whole, DatasetInfo info)
      : CloudDataset(std::move(info)), whole_(std::move(whole)) {}
  int64_t cost(int64_t id) const override { return whole_->cost(id); }
  int64_t label(int64_t id) const override { return whole_->label(id); }
  std::string source(int64_t id) const override { return whole_->source(id); }

 protected:
  Cloud measure(int64_t id) const override { return whole_->read_cloud(id); }

 private:
  std::shared_ptr<const CloudDataset> whole_;
};

}  // namespace

Voxels voxelise(const Cloud& cloud, double voxel) {
  require(std::isfinite(voxel) && voxel > 0, "voxelise", "the voxel's side is ", voxel, ", expected it above 0");
  require(static_cast<int64_t>(cloud.features.size()) == cloud.size() * cloud.channels &&
              (cloud.labels.empty() || cloud.labels.size() == cloud.points.size()),
          "voxelise", cloud.size(), " points have ", cloud.features.size(), " features and ", cloud.labels.size(),
          " labels, expected ", cloud.channels, " features and one label each, or no labels");
  const points::Cells cells = points::cells_of("voxelise", cloud.points, voxel);
  const int64_t rows = cells.size();
  Voxels out{.coordinates = at::empty({rows, 3}, at::kInt),
             .features = at::empty({rows, cloud.channels}, at::kFloat),
             .labels = at::empty({rows}, at::kLong),
             .voxel_of_point = std::vector<int64_t>(cloud.points.size())};
  auto* coordinates = out.coordinates.mutable_data_ptr<int32_t>();
  auto* features = out.features.mutable_data_ptr<float>();
  auto* labels = out.labels.mutable_data_ptr<int64_t>();
  std::vector<int64_t> scratch;
  for (int64_t row = 0; row < rows; ++row) {
    const auto points = cells.points_of(row);
    std::ranges::copy(cells.places[row], coordinates + 3 * row);
    average(cloud, points, features + row * cloud.channels);
    labels[row] = majority(cloud, points, scratch);
    for (const int32_t point : points) out.voxel_of_point[point] = row;
  }
  return out;
}

std::shared_ptr<const Dataset> first_clouds(const std::shared_ptr<const Dataset>& dataset, const DatasetInfo& info) {
  auto clouds = std::dynamic_pointer_cast<const CloudDataset>(dataset);
  return clouds == nullptr ? nullptr : std::make_shared<CloudPrefix>(std::move(clouds), info);
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
