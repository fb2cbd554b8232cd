// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/tensor_field.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/sparse/detail/row_products.h"
#include "sparse/feature_checks.h"

namespace lockstep::sparse {
namespace {

/// Real columns rounded down to multiples of `step`, as int32. Throws Error where that cannot be.
at::Tensor round_down(const char* operation, const at::Tensor& values, const at::Tensor& step) {
  const at::Tensor rounded = at::floor(values.to(at::kDouble) / step) * step;
  if (rounded.numel() > 0) {
    require(at::isfinite(rounded).all().item<bool>(), operation, "some coordinates are not finite");
    const double low = rounded.min().item<double>(), high = rounded.max().item<double>();
    require(low >= std::numeric_limits<int32_t>::min() && high <= std::numeric_limits<int32_t>::max(), operation,
            "coordinates reach from ", low, " to ", high, ", expected them within int32");
  }
  return rounded.to(at::kInt);
}

}  // namespace

TensorField::TensorField(at::Tensor features, at::Tensor coordinates, CoordinateManagerPtr manager)
    : features_(std::move(features)), coordinates_(std::move(coordinates)), manager_(std::move(manager)) {
  require(coordinates_.defined() && coordinates_.dim() == 2 && coordinates_.is_floating_point() &&
              coordinates_.device().is_cpu() && coordinates_.size(1) >= 2 && coordinates_.size(1) <= 9,
          "TensorField", "coordinates are ", describe(coordinates_), ", expected Float [N, 1 + D] on cpu");
  check_features("TensorField", features_, coordinates_.size(0));
  if (!manager_) manager_ = global_coordinate_manager();
  if (!manager_) manager_ = std::make_shared<CoordinateManager>(coordinates_.size(1) - 1);
  require(manager_->dimension() == coordinates_.size(1) - 1, "TensorField", "coordinates are ", describe(coordinates_),
          ", expected ", manager_->dimension() + 1, " columns as the manager has");
  voxels(AxisValues(manager_->dimension(), 1));
}

const CoordinateManagerPtr& TensorField::manager() const {
  require(manager_ != nullptr, "TensorField", "this is TensorField(), expected one with features and coordinates");
  return manager_;
}

TensorField TensorField::with_features(at::Tensor features) const {
  check_features("TensorField", features, size());
  TensorField other = *this;
  other.features_ = std::move(features);
  return other;
}

at::Tensor TensorField::voxels(const AxisValues& tensor_stride) const {
  std::vector<double> step = {1};
  for (const int64_t value : tensor_stride) {
    require(value >= 1, "TensorField", "tensor stride is ", to_string(tensor_stride), ", expected positive values");
    step.push_back(static_cast<double>(value));
  }
  require(static_cast<int64_t>(step.size()) == coordinates_.size(1), "TensorField", "tensor stride is ",
          to_string(tensor_stride), ", expected ", dimension(), " values");
  return round_down("TensorField", coordinates_, at::tensor(step, at::kDouble));
}

SparseTensor TensorField::sparse(AxisValues tensor_stride, Quantization quantization) const {
  if (tensor_stride.empty()) tensor_stride.assign(dimension(), 1);
  const at::Tensor rounded = voxels(tensor_stride);
  return {features_, rounded, std::move(tensor_stride), quantization, manager_};
}

at::Tensor TensorField::inverse_mapping(const SparseTensor& x) const {
  return x.manager()->map(x.key())->find(voxels(x.tensor_stride()));
}

TensorField TensorField::slice(const SparseTensor& x) const {
  return with_features(sum_rows(x.features(), RowMap::from_index(inverse_mapping(x), x.size())));
}

TensorField TensorField::cat_slice(const SparseTensor& x) const {
  return with_features(at::cat({features_, slice(x).features()}, 1));
}

TensorField TensorField::interpolate(const SparseTensor& x) const {
  return with_features(x.interpolate(coordinates_));
}

SparseTensor TensorField::splat() const {
  const int64_t axes = dimension();
  const at::Tensor low = voxels(AxisValues(axes, 1));
  const at::Tensor share = coordinates_.to(at::kDouble) - low;
  std::vector<at::Tensor> corners, weights;
  for (int64_t bits = 0; bits < int64_t{1} << axes; ++bits) {
    at::Tensor corner = low.to(at::kLong), weight = at::ones({size()}, at::kDouble);
    for (int64_t axis = 0; axis < axes; ++axis) {
      const at::Tensor part = share.select(1, axis + 1);
      weight = weight * (bits >> axis & 1 ? part : 1 - part);
      if (bits >> axis & 1) corner.select(1, axis + 1).add_(1);
    }
    corners.push_back(corner);
    weights.push_back(weight);
  }
  // Corners without weight stay out.
  const at::Tensor weight = at::cat(weights), used = at::nonzero(weight).squeeze(1);
  const at::Tensor reached = at::cat(corners).index_select(0, used);
  if (reached.numel() > 0)
    require(reached.max().item<int64_t>() <= std::numeric_limits<int32_t>::max(), "TensorField::splat",
            "a corner lies at ", reached.max().item<int64_t>(), ", expected all within int32");
  const CoordinateManager::Inserted inserted = manager_->insert(reached.to(at::kInt), AxisValues(axes, 1));
  const at::Tensor rows = inserted.inverse.defined() ? inserted.inverse : at::arange(used.size(0));
  const at::Tensor points = at::arange(size()).repeat({int64_t{1} << axes}).index_select(0, used);
  const RowMapPtr map = RowMap::from_entries(rows, points, manager_->size(inserted.key), size());
  return {weigh_rows(features_, map, weight.index_select(0, used).to(features_.scalar_type())), inserted.key, manager_};
}

TensorField points_of(const SparseTensor& voxels) {
  return {voxels.features(), voxels.coordinates().to(at::kDouble), voxels.manager()};
}

at::Tensor batched_coordinates(const std::vector<at::Tensor>& coordinates) {
  std::vector<at::Tensor> parts;
  for (size_t b = 0; b < coordinates.size(); ++b) {
    require(coordinates[b].dim() == 2, "batched_coordinates", "part ", b, " is ", describe(coordinates[b]),
            ", expected [n, D]");
    parts.push_back(at::cat(
        {at::full({coordinates[b].size(0), 1}, static_cast<int64_t>(b), coordinates[b].options()), coordinates[b]}, 1));
  }
  require(!parts.empty(), "batched_coordinates", "there are no parts, expected one at least");
  return at::cat(parts);
}

Collated sparse_collate(const std::vector<at::Tensor>& coordinates, const std::vector<at::Tensor>& features,
                        const std::vector<at::Tensor>& labels) {
  require(coordinates.size() == features.size() && (labels.empty() || labels.size() == features.size()),
          "sparse_collate", "there are ", coordinates.size(), " coordinates, ", features.size(), " features and ",
          labels.size(), " labels, expected as many of each");
  for (size_t b = 0; b < features.size(); ++b)
    require(features[b].size(0) == coordinates[b].size(0), "sparse_collate", "features of part ", b, " are ",
            describe(features[b]), ", expected ", coordinates[b].size(0), " rows");
  return {batched_coordinates(coordinates), at::cat(features), labels.empty() ? at::Tensor() : at::cat(labels)};
}

Quantized sparse_quantize(const at::Tensor& coordinates, const at::Tensor& features, const at::Tensor& labels,
                          int64_t ignore_label, double quantization_size) {
  const char* name = "sparse_quantize";
  require(coordinates.defined() && coordinates.dim() == 2, name, "coordinates are ", describe(coordinates),
          ", expected [N, D]");
  require(quantization_size > 0, name, "quantization size is ", quantization_size, ", expected a positive one");
  const int64_t count = coordinates.size(0);
  const at::Tensor step = at::ones({1}, at::kDouble);
  const at::Tensor voxels = round_down(name, coordinates.to(at::kDouble) / quantization_size, step);
  const auto inserted = CoordinateMap::insert(batched_coordinates({voxels}));
  Quantized result;
  result.unique = inserted.unique.defined() ? inserted.unique : at::arange(count);
  result.inverse = inserted.inverse.defined() ? inserted.inverse : at::arange(count);
  result.coordinates = voxels.index_select(0, result.unique);
  if (features.defined()) {
    require(features.size(0) == count, name, "features are ", describe(features), ", expected ", count, " rows");
    result.features = features.index_select(0, result.unique);
  }
  if (labels.defined()) {
    require(labels.dim() == 1 && labels.size(0) == count && labels.scalar_type() == at::kLong, name, "labels are ",
            describe(labels), ", expected Long [", count, "]");
    result.labels = labels.index_select(0, result.unique);
    const at::Tensor given = labels.contiguous(), rows = result.inverse.contiguous();
    int64_t* out = result.labels.mutable_data_ptr<int64_t>();
    std::vector<bool> conflict(result.labels.size(0));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows.const_data_ptr<int64_t>()[i];
      if (given.const_data_ptr<int64_t>()[i] != out[row]) conflict[row] = true;
    }
    for (size_t row = 0; row < conflict.size(); ++row)
      if (conflict[row]) out[row] = ignore_label;
  }
  return result;
}

}  // namespace lockstep::sparse
