// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/cloud_reader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "data/clouds/balanced_shares.h"
#include "data/clouds/clouds.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kCloudStream = 0x636C6F756473;  // "clouds": nothing else draws from these numbers

/// All voxels of a share, each with the number of its cloud. Plain copies: libtorch would start threads here.
void join(const std::vector<SeenCloud>& clouds, int64_t channels, bool pinned, Batch& batch) {
  int64_t rows = 0;
  for (const SeenCloud& cloud : clouds) rows += cloud.voxels.labels.size(0);
  batch.coordinates = at::empty({rows, 4}, at::kInt);
  batch.inputs = at::empty({rows, channels}, at::TensorOptions(at::kFloat).pinned_memory(pinned));
  auto* places = batch.coordinates.mutable_data_ptr<int32_t>();
  auto* features = batch.inputs.mutable_data_ptr<float>();
  for (size_t number = 0; number < clouds.size(); ++number) {
    const Voxels& voxels = clouds[number].voxels;
    const int64_t size = voxels.labels.size(0);
    const auto* place = voxels.coordinates.const_data_ptr<int32_t>();
    for (int64_t row = 0; row < size; ++row, place += 3) {
      *places++ = static_cast<int32_t>(number);
      places = std::copy_n(place, 3, places);
    }
    features = std::copy_n(voxels.features.const_data_ptr<float>(), size * channels, features);
  }
  batch.sorted_coordinates = points::SortedCoordinates(batch.coordinates);
}

/// The classes of all voxels.
std::vector<int64_t> labels_of_voxels(const std::vector<SeenCloud>& clouds) {
  std::vector<int64_t> labels;
  for (const auto& [voxels, unused] : clouds) {
    const auto* label = voxels.labels.const_data_ptr<int64_t>();
    labels.insert(labels.end(), label, label + voxels.labels.size(0));
  }
  return labels;
}

/// All points one after another: the rows of their voxels in the batch, and their classes.
void join_points(const std::vector<SeenCloud>& clouds, Batch& batch) {
  std::vector<int64_t> rows, labels;
  int64_t first = 0;
  for (const auto& [voxels, labels_of_points] : clouds) {
    for (const int64_t row : voxels.voxel_of_point) rows.push_back(first + row);
    labels.insert(labels.end(), labels_of_points.begin(), labels_of_points.end());
    labels.resize(rows.size(), kIgnore);  // nobody has labelled this cloud
    first += voxels.labels.size(0);
  }
  batch.voxel_of_point = at::tensor(rows, at::kLong);
  batch.point_targets = at::tensor(labels, at::kLong);
}

/// The classes of whole clouds; those without points have no row in what a network gives, and so no label.
std::vector<int64_t> labels_of_clouds(const std::vector<SeenCloud>& clouds, const std::vector<int64_t>& ids,
                                      const CloudDataset& dataset) {
  std::vector<int64_t> labels;
  for (size_t number = 0; number < clouds.size(); ++number)
    if (clouds[number].voxels.labels.size(0) > 0) labels.push_back(dataset.label(ids[number]));
  return labels;
}

}  // namespace

CloudReader::CloudReader(std::shared_ptr<const CloudDataset> dataset, const Order& order, const LoaderOptions& options)
    : ShareReader(order, options),
      dataset_(std::move(dataset)),
      batch_(options.batch),
      replicas_(options.replicas),
      transforms_(options.transforms),
      key_{options.seed, kCloudStream},
      points_(options.points),
      pinned_(pins(options)) {
  require(!points_ || dataset_->info().segments(), "Loader", "points are asked for, and a class of ",
          dataset_->info().name, " is of a whole cloud, expected data whose points have one each");
  check_for_clouds(transforms_);
  const auto mixes = [](const Transform& step) { return std::holds_alternative<RandomMix>(step); };
  require(!dataset_->info().whole_clouds || std::ranges::none_of(transforms_.list(), mixes), "Loader",
          "mix makes one of two scenes, and a cloud of ", dataset_->info().name, " has one class: leave mix out");
  if (!options.cache.empty()) cache_.emplace(options.cache);
  require(options.tail != Tail::pad, "Loader", "the tail is pad, which is for examples of one size, and ",
          dataset_->info().name, " has clouds, expected exact or drop_last");
}

CloudReader::Dealt CloudReader::deal(const Batch& batch) const {
  Dealt dealt;
  dealt.ids.resize(batch.global_count);
  order().fill(batch.at.epoch, batch.at.step * batch_, dealt.ids);
  for (const int64_t id : dealt.ids) dealt.costs.push_back(cost(id, key_of(id, batch.at.epoch)));
  dealt.shares = balanced_shares(dealt.costs, replicas_);
  return dealt;
}

std::vector<int64_t> CloudReader::costs(int64_t index) const {
  const Dealt dealt = deal(begin(index));
  std::vector<int64_t> costs;
  for (const auto& share : dealt.shares) {
    costs.push_back(0);
    for (const int64_t place : share) costs.back() += dealt.costs[place];
  }
  return costs;
}

int64_t CloudReader::cost(int64_t id, RandomKey key) const {
  const auto other = mixed_in(transforms_, key, id, dataset_->size());
  return dataset_->cost(id) + (other ? dataset_->cost(*other) : 0);
}

Cloud CloudReader::cloud(int64_t id) const {
  const auto read = [&] { return dataset_->read_cloud(id); };
  return cache_ ? cached_cloud(*cache_, dataset_->source(id), dataset_->info().input_numel(), read) : read();
}

SeenCloud CloudReader::see(int64_t id, int64_t epoch) const {
  const double side = dataset_->info().voxel;
  if (transforms_.empty() && cache_ && !points_)
    return {cached_voxels(*cache_, dataset_->source(id), side, dataset_->info().input_numel(),
                          [&] { return voxelise(dataset_->read_cloud(id), side); }),
            {}};
  Cloud scene = cloud(id);
  transform(scene, transforms_, key_of(id, epoch),
            {.id = id, .count = dataset_->size(), .read = [&](int64_t other) { return cloud(other); }});
  Voxels voxels = voxelise(scene, side);
  return {std::move(voxels), points_ ? std::move(scene.labels) : std::vector<int64_t>{}};
}

Batch CloudReader::read(int64_t index, int64_t replica, PreparedTransforms::Scratch& /*scratch*/) {
  const StandardFloats standard;
  const c10::InferenceMode off(false);  // a consumer in inference mode may be the one who reads
  Batch batch = begin(index);
  const Dealt dealt = deal(batch);
  std::vector<int64_t> ids;  // of this share, in the order of the batch
  for (const int64_t place : dealt.shares[replica]) ids.push_back(dealt.ids[place]);
  std::vector<SeenCloud> clouds;
  for (const int64_t id : ids) clouds.push_back(see(id, batch.at.epoch));
  join(clouds, dataset_->info().input_numel(), pinned_, batch);
  if (points_) join_points(clouds, batch);
  const auto labels =
      dataset_->info().whole_clouds ? labels_of_clouds(clouds, ids, *dataset_) : labels_of_voxels(clouds);
  batch.targets = at::empty({static_cast<int64_t>(labels.size())}, at::TensorOptions(at::kLong).pinned_memory(pinned_));
  std::ranges::copy(labels, batch.targets.mutable_data_ptr<int64_t>());
  batch.weight = static_cast<double>(std::ranges::count_if(labels, [](int64_t one) { return one >= 0; }));
  batch.ids = at::tensor(ids, at::kLong);
  batch.count = static_cast<int64_t>(ids.size());
  return batch;
}

std::unique_ptr<ShareReader> make_cloud_reader(const std::shared_ptr<const Dataset>& dataset, const Order& order,
                                               const LoaderOptions& options) {
  auto clouds = std::dynamic_pointer_cast<const CloudDataset>(dataset);
  return clouds == nullptr ? nullptr : std::make_unique<CloudReader>(std::move(clouds), order, options);
}

}  // namespace lockstep::data
