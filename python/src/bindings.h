// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <string>

#include "lockstep/sparse/sparse_tensor.h"

namespace lockstep::python {

/// Lets other Python threads run while C++ computes.
using ReleaseGil = pybind11::call_guard<pybind11::gil_scoped_release>;

/// A coordinate map key as Python code handles it: it may be empty, a place for a layer to put its output's key in.
class MapKey {
 public:
  explicit MapKey(int64_t coordinate_size);
  explicit MapKey(sparse::CoordinateMapKey key);

  bool is_set() const { return key_.has_value(); }
  int64_t coordinate_size() const { return coordinate_size_; }
  /// Throws Error where it is empty.
  const sparse::CoordinateMapKey& get() const;
  /// Throws Error where it is set already, or has another number of axes.
  void set(sparse::CoordinateMapKey key);
  std::string to_string() const;
  bool operator==(const MapKey& other) const = default;

 private:
  int64_t coordinate_size_;
  std::optional<sparse::CoordinateMapKey> key_;
};

/// What each adds to lockstep._C.
void bind_coordinates(pybind11::module_& module);
void bind_features(pybind11::module_& module);
void bind_data(pybind11::module_& module);

}  // namespace lockstep::python
