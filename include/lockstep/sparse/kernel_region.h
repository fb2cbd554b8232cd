// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/sparse/coordinate_map.h"

namespace lockstep::sparse {

enum class RegionType { hypercube, hypercross, custom };

/// The offsets that a kernel looks at, one weight matrix for each.
///
/// - hypercube: all of a box, the first axis fastest. An odd size is centred, -(k-1)/2 .. (k-1)/2; an even one looks
///   forward, 0 .. k-1.
/// - hypercross: the centre, then for each axis +1, -1, +2, -2, ...; sizes are odd.
/// - custom: the offsets given.
struct KernelRegion {
  RegionType type = RegionType::hypercube;
  AxisValues size;              ///< for each axis; of no meaning to a custom region
  AxisValues dilation;          ///< for each axis
  std::vector<int64_t> custom;  ///< D values for each offset, before dilation

  /// Checked constructors; they throw Error on a size or dilation below 1, an even size of a cross, a wrong count.
  static KernelRegion hypercube(AxisValues size, AxisValues dilation);
  static KernelRegion hypercross(AxisValues size, AxisValues dilation);
  static KernelRegion with_offsets(std::vector<int64_t> offsets, AxisValues dilation);

  int64_t dimension() const { return static_cast<int64_t>(dilation.size()); }
  int64_t volume() const;

  /// input - output for each offset in turn, D values each: multiplied by dilation and by the tensor stride of the
  /// side that lies finer (the input of a convolution, the output of a transposed one).
  std::vector<int64_t> offsets(const AxisValues& tensor_stride) const;

  std::string to_string() const;
  auto operator<=>(const KernelRegion&) const = default;
};

}  // namespace lockstep::sparse
