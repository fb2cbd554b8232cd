// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/output_coordinates.h"

#include "lockstep/base/error.h"

namespace lockstep::sparse {

OutputCoordinates::OutputCoordinates(const SparseTensor& tensor) : key_(tensor.key()), manager_(tensor.manager()) {}

OutputCoordinates::OutputCoordinates(at::Tensor coordinates) : coordinates_(std::move(coordinates)) {
  require(coordinates_.defined(), "OutputCoordinates", "coordinates are undefined, expected Int [M, 1 + D]");
}

CoordinateMapKey OutputCoordinates::key_for(const SparseTensor& x, const LayerGeometry& geometry) const {
  CoordinateManager& manager = *x.manager();
  if (coordinates_.defined()) return manager.insert(coordinates_, manager.out_stride(x.key(), geometry), "given").key;
  if (!key_) return manager.out_key(x.key(), geometry);
  if (manager_ == nullptr || manager_ == x.manager()) return *key_;
  const CoordinateMapPtr map = manager_->map(*key_);
  if (manager.contains(*key_) && manager.map(*key_) == map) return *key_;
  return manager.insert(map, key_->tensor_stride, key_->id);
}

}  // namespace lockstep::sparse
