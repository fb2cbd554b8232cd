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
  if (coordinates_.defined()) return manager.insert_apart(coordinates_, manager.out_stride(x.key(), geometry)).key;
  if (!key_) return manager.out_key(x.key(), geometry);
  return manager_ ? manager.share(*manager_, *key_) : *key_;
}

}  // namespace lockstep::sparse
