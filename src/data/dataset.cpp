// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "data/clouds/clouds.h"
#include "data/memory_dataset.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// A data set whose example i is another's example i, as far as it goes.
class Prefix : public Dataset {
 public:
  Prefix(std::shared_ptr<const Dataset> whole, DatasetInfo info) : Dataset(std::move(info)), whole_(std::move(whole)) {}
  Normalization normalization() const override { return whole_->normalization(); }
  bool holds_bytes() const override { return whole_->holds_bytes(); }

 protected:
  void read_inputs(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs) const override {
    std::vector<int64_t> targets(ids.size() * info().target_numel());
    whole_->read(ids, layout, affine, inputs, targets.data());
  }
  void read_bytes(std::span<const int64_t> ids, Layout layout, uint8_t* inputs) const override {
    std::vector<int64_t> targets(ids.size() * info().target_numel());
    whole_->read(ids, layout, inputs, targets.data());
  }
  void fetch_targets(std::span<const int64_t> ids, int64_t* targets) const override {
    whole_->read_targets(ids, targets);
  }

 private:
  std::shared_ptr<const Dataset> whole_;
};

}  // namespace

int64_t DatasetInfo::input_numel() const {
  return product(input_shape);
}

int64_t DatasetInfo::target_numel() const {
  return product(target_shape);
}

Dataset::Dataset(DatasetInfo info) : info_(std::move(info)) {
  require(info_.size > 0, "Dataset", info_.name, " has ", info_.size, " examples, expected at least 1");
  require(0 < info_.classes && info_.classes <= kMostClasses, "Dataset", info_.name, " has ", info_.classes,
          " classes, expected 1 to ", kMostClasses);
  require(!info_.input_shape.empty() && std::ranges::all_of(info_.input_shape, [](int64_t n) { return n > 0; }),
          "Dataset", info_.name, " has inputs of shape ", c10::IntArrayRef(info_.input_shape),
          ", expected positive sizes");
  if (info_.class_names.empty())
    for (int64_t c = 0; c < info_.classes; ++c) info_.class_names.push_back(std::to_string(c));
  require(static_cast<int64_t>(info_.class_names.size()) == info_.classes, "Dataset", info_.name, " has ",
          info_.class_names.size(), " names of classes, expected ", info_.classes);
}

void Dataset::check(const char* operation, std::span<const int64_t> ids) const {
  for (const int64_t id : ids)
    require(0 <= id && id < size(), operation, "example ", id, " of ", info_.name, ", expected one in [0, ", size(),
            ")");
}

void Dataset::read(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs, int64_t* targets) const {
  check("Dataset::read", ids);
  const size_t channels = info_.input_shape.size() == 3 ? info_.input_shape[0] : 1;
  require(affine.scale.size() == affine.shift.size() && (affine.scale.empty() || affine.scale.size() == channels),
          "Dataset::read", "got ", affine.scale.size(), " scales and ", affine.shift.size(), " shifts, expected ",
          channels, " of each, one a channel, or none");
  if (info_.input_shape.size() != 3) layout = Layout::contiguous;
  read_inputs(ids, layout, affine, inputs);
  fetch_targets(ids, targets);
}

void Dataset::read(std::span<const int64_t> ids, float* inputs, int64_t* targets) const {
  read(ids, Layout::contiguous, {}, inputs, targets);
}

void Dataset::read(std::span<const int64_t> ids, Layout layout, uint8_t* inputs, int64_t* targets) const {
  check("Dataset::read", ids);
  require(holds_bytes(), "Dataset::read", "inputs of ", info_.name, " are no bytes, expected to be read as floats");
  if (info_.input_shape.size() != 3) layout = Layout::contiguous;
  read_bytes(ids, layout, inputs);
  fetch_targets(ids, targets);
}

void Dataset::read_bytes(std::span<const int64_t> /*ids*/, Layout /*layout*/, uint8_t* /*inputs*/) const {
  fail("Dataset::read", info_.name, " says that its inputs are bytes and does not read them");
}

void Dataset::read_targets(std::span<const int64_t> ids, int64_t* targets) const {
  check("Dataset::read_targets", ids);
  fetch_targets(ids, targets);
}

std::vector<int64_t> Dataset::targets() const {
  std::vector<int64_t> ids(size()), targets(size() * info_.target_numel());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  fetch_targets(ids, targets.data());
  return targets;
}

std::shared_ptr<const Dataset> first_of(std::shared_ptr<const Dataset> dataset, int64_t count) {
  require(dataset != nullptr, "first_of", "the data set is null");
  require(0 < count && count <= dataset->size(), "first_of", "count is ", count, ", expected 1 to ", dataset->size(),
          ", the size of ", dataset->info().name);
  if (count == dataset->size()) return dataset;
  DatasetInfo info = dataset->info();
  info.size = count;
  if (auto clouds = first_clouds(dataset, info)) return clouds;
  return std::make_shared<Prefix>(std::move(dataset), std::move(info));
}

}  // namespace lockstep::data
