// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "lockstep/sparse/sparse_tensor.h"

namespace lockstep::sparse {

/// Where a layer puts its outputs: where its geometry says, or at coordinates that the caller names.
class OutputCoordinates {
 public:
  /// Where the geometry says.
  OutputCoordinates() = default;
  /// At coordinates that the input's manager knows.
  OutputCoordinates(CoordinateMapKey key) : key_(std::move(key)) {}  // NOLINT(google-explicit-constructor)
  /// At those of another tensor, of the input's manager or of another one.
  OutputCoordinates(const SparseTensor& tensor);  // NOLINT(google-explicit-constructor)
  /// At these, int32 [M, 1 + D], multiples of the tensor stride that the geometry gives. Of equal ones one output is
  /// made. Each call adds them to the input's manager.
  OutputCoordinates(at::Tensor coordinates);  // NOLINT(google-explicit-constructor)

  /// Throws Error where they don't fit the input or the geometry.
  CoordinateMapKey key_for(const SparseTensor& x, const LayerGeometry& geometry) const;

 private:
  std::optional<CoordinateMapKey> key_;
  CoordinateManagerPtr manager_;
  at::Tensor coordinates_;
};

}  // namespace lockstep::sparse
