// SPDX-License-Identifier: Apache-2.0
// What tests of the CUDA twins have in common. They are built twice: against CUDA, for a GPU, and with without_gpu/ in
// place of CUDA, where everything but the .cu files runs on the CPU.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/sparse/kernel_region.h"
#include "sparse/ops/kernels.h"
#include "support/clouds.h"

#ifdef LOCKSTEP_WITHOUT_GPU
#define TWIN_SUITE(name) name##WithoutGpu
#define SKIP_WITHOUT_GPU() (void)0
#else
#define TWIN_SUITE(name) name##OnGpu
#define SKIP_WITHOUT_GPU() \
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device here"
#endif

namespace lockstep::sparse::test {

#ifdef LOCKSTEP_WITHOUT_GPU
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
inline const at::Device twin_device(at::kCPU);
#else
inline const at::Device twin_device(at::kCUDA, 0);
#endif

inline at::Tensor on_twin(const at::Tensor& tensor) {
  return tensor.to(twin_device);
}

inline double tolerance_of(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-5 : type == at::kHalf ? 2e-3 : 2e-2;
}

/// `got` may lie on the twin. NaN must meet NaN.
inline void expect_close(const at::Tensor& got, const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(got.sizes(), expected.sizes());
  ASSERT_EQ(got.scalar_type(), expected.scalar_type());
  EXPECT_EQ(got.device().type(), twin_device.type());
  if (got.numel() == 0) return;
  const at::Tensor a = got.cpu().to(at::kDouble), b = expected.to(at::kDouble);
  EXPECT_TRUE(at::equal(a.isnan(), b.isnan()));
  const double scale = std::max(1.0, b.abs().nan_to_num(0).max().item<double>());
  EXPECT_LE((a - b).abs().nan_to_num(0).max().item<double>(), tolerance * scale);
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

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
