// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/sparse_tensor.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Formatting.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/points/detail/sorted_keys.h"
#include "lockstep/sparse/detail/row_products.h"
#include "sparse/feature_checks.h"

namespace lockstep::sparse {
namespace {

CoordinateManagerPtr manager_for(CoordinateManagerPtr given, const at::Tensor& coordinates) {
  if (given) return given;
  if (CoordinateManagerPtr shared = global_coordinate_manager()) return shared;
  require(coordinates.defined() && coordinates.dim() == 2, "SparseTensor", "coordinates are ", describe(coordinates),
          ", expected Int [N, 1 + D]");
  return std::make_shared<CoordinateManager>(coordinates.size(1) - 1);
}

at::Tensor quantize(const at::Tensor& features, const CoordinateManager::Inserted& inserted, int64_t size,
                    Quantization quantization) {
  if (!inserted.inverse.defined()) return features;
  require(quantization != Quantization::none, "SparseTensor", "there are ", features.size(0) - size,
          " rows whose coordinates occur before, expected different ones, or another quantization");
  if (quantization == Quantization::first) return take_rows(features, inserted.unique);
  const at::Tensor rows = at::arange(features.size(0));
  const RowMapPtr map = RowMap::from_entries(inserted.inverse, rows, size, features.size(0));
  if (quantization == Quantization::sum) return sum_rows(features, map);
  return quantization == Quantization::average ? mean_rows(features, map) : max_rows(features, map);
}

/// The corners of the grid around real points, with linear weights: entries (row, corner's row).
InterpolationMap corners(const CoordinateMap& map, const AxisValues& tensor_stride, const at::Tensor& coordinates) {
  const int64_t axes = map.dimension(), count = coordinates.size(0);
  for (const int64_t step : tensor_stride)
    require(step > 0, "interpolate", "tensor stride is ", sparse::to_string(tensor_stride),
            ", expected positive values");
  const at::Tensor given = coordinates.to(at::kDouble).contiguous();
  const double* point = given.const_data_ptr<double>();
  std::vector<int64_t> rows;
  std::vector<double> weights;
  at::Tensor corner = at::empty({count << axes, axes + 1}, at::kInt);
  int32_t* to = corner.mutable_data_ptr<int32_t>();
  for (int64_t i = 0; i < count; ++i, point += axes + 1)
    for (int64_t bits = 0; bits < int64_t{1} << axes; ++bits) {
      double weight = 1;
      int32_t* const first = to;
      require(point[0] >= 0 && point[0] <= 2147483647.0, "interpolate", "a batch index is ", point[0],
              ", expected one within int32");
      *to++ = static_cast<int32_t>(point[0]);
      for (int64_t axis = 0; axis < axes; ++axis) {
        const double step = static_cast<double>(tensor_stride[axis]), low = std::floor(point[axis + 1] / step) * step;
        const double share = (point[axis + 1] - low) / step;
        const bool upper = bits >> axis & 1;
        const double value = low + (upper ? step : 0);
        weight *= upper ? share : 1 - share;
        require(weight == 0 || (value >= -2147483648.0 && value <= 2147483647.0), "interpolate", "a coordinate is ",
                point[axis + 1], ", expected one within int32");
        *to++ = weight == 0 ? 0 : static_cast<int32_t>(value);
      }
      if (weight == 0) {
        to = first;
        continue;
      }
      rows.push_back(i);
      weights.push_back(weight);
    }
  const at::Tensor found = map.find(corner.narrow(0, 0, static_cast<int64_t>(rows.size())));
  const at::Tensor kept = at::nonzero(found.ge(0)).squeeze(1);
  RowMapPtr entries = RowMap::from_entries(at::tensor(rows, at::kLong).index_select(0, kept),
                                           found.index_select(0, kept), count, map.size());
  return {std::move(entries), at::tensor(weights, at::kDouble).index_select(0, kept)};
}

}  // namespace

SparseTensor::SparseTensor(const at::Tensor& features, const at::Tensor& coordinates, AxisValues tensor_stride,
                           Quantization quantization, CoordinateManagerPtr manager)
    : manager_(manager_for(std::move(manager), coordinates)) {
  check_features("SparseTensor", features, coordinates.defined() && coordinates.dim() > 0 ? coordinates.size(0) : 0);
  if (tensor_stride.empty()) tensor_stride.assign(manager_->dimension(), 1);
  CoordinateManager::Inserted inserted = manager_->insert(coordinates, std::move(tensor_stride));
  key_ = inserted.key;
  map_ = manager_->map(key_);
  features_ = quantize(features, inserted, map_->size(), quantization);
  unique_ = inserted.unique;
  inverse_ = inserted.inverse;
}

SparseTensor::SparseTensor(const at::Tensor& features, const points::SortedCoordinates& coordinates,
                           CoordinateManagerPtr manager)
    : features_(features),
      manager_(manager_for(std::move(manager), coordinates.coordinates())),
      map_(CoordinateMap::of(coordinates)) {
  check_features("SparseTensor", features_, map_->size());
  key_ = manager_->insert(map_, AxisValues(manager_->dimension(), 1));
}

SparseTensor::SparseTensor(at::Tensor features, CoordinateMapKey key, CoordinateManagerPtr manager)
    : features_(std::move(features)), key_(std::move(key)), manager_(std::move(manager)) {
  require(manager_ != nullptr, "SparseTensor", "there is no manager, expected the one that knows '", key_.to_string(),
          "'");
  map_ = manager_->map(key_);
  check_features("SparseTensor", features_, map_->size());
}

const CoordinateManagerPtr& SparseTensor::manager() const {
  require(manager_ != nullptr, "SparseTensor", "this is SparseTensor(), expected one with features and coordinates");
  return manager_;
}

const CoordinateMap& SparseTensor::map() const {
  static_cast<void>(manager());
  return *map_;
}

at::Tensor SparseTensor::unique_index() const {
  return unique_.defined() ? unique_ : at::arange(size());
}
at::Tensor SparseTensor::inverse_mapping() const {
  return inverse_.defined() ? inverse_ : at::arange(size());
}

SparseTensor SparseTensor::with_features(at::Tensor features) const {
  check_features("SparseTensor", features, size());
  SparseTensor other = *this;
  other.features_ = std::move(features);
  return other;
}

SparseTensor SparseTensor::to(at::Device device) const {
  require(device.is_cpu() || device.is_cuda(), "SparseTensor::to", "device is ", device.str(),
          ", expected cpu or cuda");
  return with_features(features_.to(device));
}

const SparseTensor& SparseTensor::check_finite() const {
  const at::Tensor finite = at::isfinite(features_).all(1);
  if (finite.all().item<bool>()) return *this;
  const at::Tensor bad = at::nonzero(finite.logical_not()).squeeze(1);
  fail("SparseTensor::check_finite", bad.size(0), " of ", size(), " rows hold NaN or infinity, the first one row ",
       bad[0].item<int64_t>(), " at ", text(coordinates()[bad[0].item<int64_t>()]), ", expected finite features");
}

std::vector<int64_t> SparseTensor::batch_indices() const {
  const at::Tensor origins = manager()->map(manager_->origin(key_))->coordinates();
  std::vector<int64_t> batches;
  for (int64_t i = 0; i < origins.size(0); ++i)
    batches.push_back(origins.const_data_ptr<int32_t>()[i * origins.size(1)]);
  return batches;
}

int64_t SparseTensor::batch_size() const {
  const int64_t occurring = map().size() == 0 ? 0 : map().box().high[0] + 1;
  return std::max(occurring, manager_->batch_size());
}

at::Tensor SparseTensor::rows_at(int64_t batch) const {
  return at::nonzero(coordinates().select(1, 0).eq(batch)).squeeze(1);
}

at::Tensor SparseTensor::coordinates_at(int64_t batch) const {
  return coordinates().index_select(0, rows_at(batch)).slice(1, 1);
}

std::vector<at::Tensor> SparseTensor::decomposed_features() const {
  std::vector<at::Tensor> parts;
  for (int64_t b = 0; b < batch_size(); ++b) parts.push_back(features_at(b));
  return parts;
}

std::vector<at::Tensor> SparseTensor::decomposed_coordinates() const {
  std::vector<at::Tensor> parts;
  for (int64_t b = 0; b < batch_size(); ++b) parts.push_back(coordinates_at(b));
  return parts;
}

std::pair<at::Tensor, at::Tensor> SparseTensor::dense(const std::optional<std::vector<int64_t>>& shape,
                                                      const std::optional<AxisValues>& minimum) const {
  const char* name = "SparseTensor::dense";
  const int64_t axes = dimension();
  require(!shape || static_cast<int64_t>(shape->size()) == axes + 2, name, "shape is ",
          shape ? sparse::to_string(*shape) : "", ", expected [batches, C] and ", axes, " extents");
  require(!minimum || static_cast<int64_t>(minimum->size()) == axes, name, "minimum is ",
          minimum ? sparse::to_string(*minimum) : "", ", expected ", axes, " values");
  const points::Box& box = map().box();
  AxisValues corner(axes, 0);
  std::vector<int64_t> extents = {batch_size(), channels()};
  if (shape)
    require((*shape)[1] == channels(), name, "shape is ", sparse::to_string(*shape), ", expected ", channels(),
            " channels");
  for (int64_t axis = 0; axis < axes; ++axis) {
    const int64_t step = tensor_stride()[axis];
    require(step > 0, name, "tensor stride is ", sparse::to_string(tensor_stride()), ", expected positive values");
    if (minimum)
      require((*minimum)[axis] % step == 0, name, "minimum is ", sparse::to_string(*minimum),
              ", expected multiples of the tensor stride ", sparse::to_string(tensor_stride()));
    if (minimum)
      require(std::abs((*minimum)[axis] / 2) < int64_t{1} << 31, name, "minimum is ", sparse::to_string(*minimum),
              ", expected values within int32");
    corner[axis] = minimum ? (*minimum)[axis] : size() == 0 ? 0 : box.low[axis + 1];
    extents.push_back(size() == 0 ? 0 : std::max<int64_t>(0, (box.high[axis + 1] - corner[axis]) / step + 1));
  }
  if (shape) extents = *shape;
  // [batches, extents..., C] is a table of rows; the channels then move to the front.
  std::vector<int64_t> last = extents, order = {0, axes + 1};
  last.erase(last.begin() + 1);
  int64_t cells = 1;
  for (const int64_t extent : last)
    require(extent >= 0 && !__builtin_mul_overflow(cells, extent, &cells) && cells < int64_t{1} << 31, name,
            "the shape is ", sparse::to_string(extents), ", expected one of fewer than 2^31 cells");
  const at::Tensor rows = coordinates().to(at::kLong);
  at::Tensor flat = at::zeros({size()}, at::kLong);
  for (int64_t column = 0; column <= axes; ++column) {
    at::Tensor value = rows.select(1, column);
    if (column > 0)
      value = at::floor_divide(value - corner[column - 1], at::scalar_tensor(tensor_stride()[column - 1], at::kLong));
    const int64_t extent = extents[column == 0 ? 0 : column + 1];
    if (size() > 0)
      require(value.min().item<int64_t>() >= 0 && value.max().item<int64_t>() < extent, name, "coordinates ",
              value.min().item<int64_t>(), " to ", value.max().item<int64_t>(), " from the corner on column ", column,
              " don't fit the shape ", sparse::to_string(extents));
    flat = flat * extent + value;
  }
  last.push_back(channels());
  for (int64_t axis = 0; axis < axes; ++axis) order.push_back(axis + 1);
  const at::Tensor table = put_rows(features_, flat, cells);
  return {table.reshape(last).permute(order).contiguous(), at::tensor(corner, at::kLong)};
}

at::Tensor SparseTensor::features_at_coordinates(const at::Tensor& coordinates) const {
  return sum_rows(features_, RowMap::from_index(map().find(coordinates), size()));
}

InterpolationMap SparseTensor::interpolation_map(const at::Tensor& coordinates) const {
  require(coordinates.defined() && coordinates.dim() == 2 && coordinates.size(1) == dimension() + 1 &&
              coordinates.device().is_cpu(),
          "interpolate", "coordinates are ", describe(coordinates), ", expected [M, ", dimension() + 1, "] on cpu");
  return corners(map(), tensor_stride(), coordinates);
}

at::Tensor SparseTensor::interpolate(const at::Tensor& coordinates) const {
  const InterpolationMap corners = interpolation_map(coordinates);
  return weigh_rows(features_, corners.map, corners.weights.to(features_.scalar_type()));
}

std::string SparseTensor::to_string() const {
  if (!defined()) return "SparseTensor()";
  return text("SparseTensor(", size(), " points, ", channels(), " channels, ", c10::toString(features_.scalar_type()),
              ", D = ", dimension(), ", ", key_.to_string(), ")");
}

}  // namespace lockstep::sparse
