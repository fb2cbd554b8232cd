// SPDX-License-Identifier: Apache-2.0
// What tests of the CUDA twins have in common. They are built twice: against CUDA, for a GPU, and with without_gpu/ in
// place of CUDA, where everything but the .cu files runs on the CPU.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#ifdef LOCKSTEP_WITHOUT_GPU
#define TWIN_SUITE(name) name##WithoutGpu
#define SKIP_WITHOUT_GPU() (void)0
#else
#define TWIN_SUITE(name) name##OnGpu
#define SKIP_WITHOUT_GPU() \
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device here"
#endif

namespace lockstep::test {

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
  return at::equal(a.flatten().view(at::kByte), b.flatten().view(at::kByte));
}

/// The twin's result must be the CPU's, and the same bits when it is asked again.
inline void expect_twin(const std::function<at::Tensor()>& twin, const at::Tensor& expected, double tolerance) {
  const at::Tensor got = twin();
  expect_close(got, expected, tolerance);
  EXPECT_TRUE(same_bits(got, twin()));
}

inline at::Tensor random(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::kDouble).to(type);
}

}  // namespace lockstep::test
