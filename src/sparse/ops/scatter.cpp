// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cat.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/numerics/placement.h"
#include "lockstep/sparse/detail/row_products.h"
#include "lockstep/sparse/tensor_field.h"
#include "sparse/feature_checks.h"

// A share is a run of batch entries. Its batch indices start at 0 again, and its manager knows how many there are,
// since the last ones may be without points: so joining shares gives the batch that was cut.

namespace lockstep::sparse {
namespace {

/// The rows of the batch entries in `interval`, ascending.
at::Tensor rows_in(const at::Tensor& batch, Interval interval) {
  return at::nonzero(batch.ge(interval.begin).logical_and(batch.lt(interval.end))).squeeze(1);
}

/// Rows `index` of x; a view where they lie one after another.
at::Tensor take_run(const at::Tensor& x, const at::Tensor& index) {
  const int64_t count = index.size(0);
  if (count == 0) return x.narrow(0, 0, 0);
  const int64_t first = index[0].item<int64_t>();
  if (index[count - 1].item<int64_t>() - first + 1 == count) return x.narrow(0, first, count);
  return take_rows(x, index);
}

void check_dim(const char* operation, int64_t dim) {
  require(dim == 0, operation, "dim is ", dim, ", expected 0: batch entries are what is cut");
}

CoordinateManagerPtr new_manager(int64_t dimension, int64_t batch_size) {
  auto manager = std::make_shared<CoordinateManager>(dimension);
  manager->set_batch_size(batch_size);
  return manager;
}

/// Coordinates with `shift` added to the batch index.
at::Tensor move_batch(const at::Tensor& coordinates, int64_t shift) {
  at::Tensor moved = coordinates.clone();
  moved.select(1, 0).add_(shift);
  return moved;
}

int64_t batch_size_of(const TensorField& field) {
  const int64_t known = field.manager()->batch_size();
  if (field.size() == 0) return known;
  return std::max(known, field.coordinates().select(1, 0).max().item<int64_t>() + 1);
}

}  // namespace

std::vector<SparseTensor> lockstep_scatter(const SparseTensor& x, const std::vector<Device>& devices, int64_t dim) {
  check_dim("scatter", dim);
  std::vector<SparseTensor> shares;
  const at::Tensor coordinates = x.coordinates(), batch = coordinates.select(1, 0);
  const auto cut = Placement::even(x.batch_size(), std::ssize(devices));
  for (size_t r = 0; r < devices.size(); ++r) {
    const Interval interval = cut.block(static_cast<int64_t>(r));
    const at::Tensor rows = rows_in(batch, interval);
    CoordinateManagerPtr manager = new_manager(x.dimension(), interval.size());
    const CoordinateMapKey key =
        manager->insert(move_batch(coordinates.index_select(0, rows), -interval.begin), x.tensor_stride()).key;
    shares.emplace_back(take_run(x.features(), rows).to(devices[r].torch()), key, std::move(manager));
  }
  return shares;
}

std::vector<at::Tensor> scatter_rows(const at::Tensor& rows, const SparseTensor& x,
                                     const std::vector<Device>& devices) {
  require(rows.defined() && rows.dim() >= 1 && rows.size(0) == x.size(), "scatter_rows", "the tensor is ",
          describe(rows), ", expected ", x.size(), " rows, one for each point of ", x.to_string());
  std::vector<at::Tensor> shares;
  const at::Tensor batch = x.coordinates().select(1, 0);
  const auto cut = Placement::even(x.batch_size(), std::ssize(devices));
  for (size_t r = 0; r < devices.size(); ++r) {
    const at::Tensor mine = rows_in(batch, cut.block(static_cast<int64_t>(r)));
    shares.push_back(rows.index_select(0, mine).to(devices[r].torch()));
  }
  return shares;
}

SparseTensor lockstep_gather(const std::vector<SparseTensor>& parts, const Device& device, int64_t dim) {
  check_dim("gather", dim);
  require(!parts.empty(), "gather", "there are no sparse tensors, expected one at least");
  std::vector<at::Tensor> features, coordinates;
  int64_t entries = 0;
  for (const SparseTensor& part : parts) {
    require(part.dimension() == parts[0].dimension() && part.tensor_stride() == parts[0].tensor_stride() &&
                part.channels() == parts[0].channels(),
            "gather", "sparse tensors differ: ", part.to_string(), ", expected as the first one, ",
            parts[0].to_string());
    features.push_back(part.features().to(device.torch()));
    coordinates.push_back(move_batch(part.coordinates(), entries));
    entries += part.batch_size();
  }
  CoordinateManagerPtr manager = new_manager(parts[0].dimension(), entries);
  const CoordinateMapKey key = manager->insert(at::cat(coordinates), parts[0].tensor_stride()).key;
  return {at::cat(features), key, std::move(manager)};
}

std::vector<TensorField> lockstep_scatter(const TensorField& x, const std::vector<Device>& devices, int64_t dim) {
  check_dim("scatter", dim);
  std::vector<TensorField> shares;
  const at::Tensor batch = x.coordinates().select(1, 0);
  const auto cut = Placement::even(batch_size_of(x), std::ssize(devices));
  for (size_t r = 0; r < devices.size(); ++r) {
    const Interval interval = cut.block(static_cast<int64_t>(r));
    const at::Tensor rows = rows_in(batch, interval);
    shares.emplace_back(take_run(x.features(), rows).to(devices[r].torch()),
                        move_batch(x.coordinates().index_select(0, rows), -interval.begin),
                        new_manager(x.dimension(), interval.size()));
  }
  return shares;
}

TensorField lockstep_gather(const std::vector<TensorField>& parts, const Device& device, int64_t dim) {
  check_dim("gather", dim);
  require(!parts.empty(), "gather", "there are no fields, expected one at least");
  std::vector<at::Tensor> features, coordinates;
  int64_t entries = 0;
  for (const TensorField& part : parts) {
    features.push_back(part.features().to(device.torch()));
    coordinates.push_back(move_batch(part.coordinates(), entries));
    entries += batch_size_of(part);
  }
  return {at::cat(features), at::cat(coordinates), new_manager(parts[0].dimension(), entries)};
}

}  // namespace lockstep::sparse
