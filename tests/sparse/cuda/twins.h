// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/sparse/kernel_region.h"
#include "sparse/ops/kernels.h"
#include "support/clouds.h"
#include "support/twins/twins.h"

namespace lockstep::sparse::test {

using namespace lockstep::test;

inline KernelMapPtr make_map(const at::Tensor& cloud, int64_t size, int64_t stride, int64_t dilation = 1) {
  const int64_t axes = cloud.size(1) - 1;
  const CoordinateMapPtr in = CoordinateMap::insert(cloud).map;
  const CoordinateMapPtr out = stride == 1 ? in : in->strided(AxisValues(axes, stride));
  const KernelRegion region = KernelRegion::hypercube(AxisValues(axes, size), AxisValues(axes, dilation));
  return KernelMap::deferred(in, out, region.offsets(AxisValues(axes, 1)));
}

inline KernelMapPtr make_map(int64_t points, int64_t axes, int64_t size, int64_t stride) {
  const int64_t high = axes == 1 ? 150 : axes == 2 ? 14 : 5;
  return make_map(random_cloud(points, axes, -high, high, 2, 11), size, stride);
}

/// Coordinates whose keys need more than 64 bits.
inline at::Tensor wide_cloud(int64_t count, uint32_t seed) {
  at::Tensor cloud = random_cloud(count, 3, -3, 3, 2, seed);
  cloud.narrow(1, 1, 3).mul_(500'000'000);
  return cloud;
}

}  // namespace lockstep::sparse::test
