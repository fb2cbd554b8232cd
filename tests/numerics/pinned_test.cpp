// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/pinned.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/numerics/random.h"

namespace lockstep {
namespace {

// A value, kept from the compiler's own arithmetic.
float opaque(float value) {
  volatile float hidden = value;
  return hidden;
}
bool keeps_denormals() {
  return opaque(std::numeric_limits<float>::min()) * opaque(0.5f) != 0;
}

// The same values at `floats` past an aligned address.
at::Tensor moved(const at::Tensor& tensor, int64_t floats) {
  const at::Tensor copy = at::empty({tensor.numel() + 64}).narrow(0, floats, tensor.numel()).view(tensor.sizes());
  return copy.copy_(tensor);
}

TEST(Numerics, EveryThreadThatEntersHasTheSameFlagsWhateverItHadBefore) {
  std::vector<uint64_t> control(3);
  std::vector<int> threads(3);
  std::thread([&] {
    const ReplicaNumerics numerics;
    control[0] = detail::float_control();
    threads[0] = at::get_num_threads();
  }).join();
  std::thread([&] {  // as a host program may have left it
    std::fesetround(FE_UPWARD);
    at::globalContext().setFlushDenormal(true);
    at::set_num_threads(2);
    const uint64_t before = detail::float_control();
    {
      const ReplicaNumerics numerics;
      control[1] = detail::float_control();
      threads[1] = at::get_num_threads();
      EXPECT_TRUE(keeps_denormals());
      EXPECT_EQ(opaque(1) + opaque(0x1p-30f), 1);
    }
    EXPECT_EQ(detail::float_control(), before);
    EXPECT_EQ(at::get_num_threads(), 2);
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
  })
      .join();
  const ReplicaNumerics numerics;
  control[2] = detail::float_control();
  threads[2] = at::get_num_threads();
  EXPECT_EQ(control, std::vector<uint64_t>(3, control[0]));
  EXPECT_EQ(threads, std::vector<int>(3, 1));
}

TEST(Numerics, OptionsSetDenormalsAndThreadsOfThisThreadAlone) {
  const ReplicaNumerics outer;
#if defined(__x86_64__) || defined(__aarch64__)
  {
    const ReplicaNumerics numerics({.intra_op_threads = 2, .flush_denormals = true});
    EXPECT_FALSE(keeps_denormals());
    EXPECT_EQ(at::get_num_threads(), 2);
  }
#endif
  EXPECT_TRUE(keeps_denormals());
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_THROW(ReplicaNumerics({.intra_op_threads = 0}), Error);
  EXPECT_EQ(at::get_num_threads(), 1);
}

TEST(Numerics, OncePinnedAMatrixProductDoesNotDependOnAlignment) {
  pin_numerics();
  if (mkl_mode() != "auto") GTEST_SKIP() << "MKL's mode is " << mkl_mode();
  const ReplicaNumerics numerics;
  const RandomKey key{1, 2};
  for (int64_t rows : {1, 7, 100})
    for (int64_t inner : {5, 84, 400})
      for (int64_t columns : {10, 33, 120}) {
        const at::Tensor a = normal_(at::empty({rows, inner}), key), b = normal_(at::empty({inner, columns}), key, 77);
        const at::Tensor product = at::mm(a, b), gradient = at::mm(a.t(), product);
        for (int64_t offset : {1, 4, 8, 13}) {
          EXPECT_TRUE(at::mm(moved(a, offset), moved(b, offset)).equal(product)) << rows << inner << columns << offset;
          EXPECT_TRUE(at::mm(moved(a, offset).t(), moved(product, offset)).equal(gradient))
              << rows << inner << columns << offset;
        }
      }
}

TEST(Numerics, Tf32IsOffUnlessTheEnvironmentAllowsIt) {
  unsetenv("LOCKSTEP_TF32");
  EXPECT_FALSE(tf32_is_allowed());
  for (const char* const off : {"", "0"}) {
    setenv("LOCKSTEP_TF32", off, 1);
    EXPECT_FALSE(tf32_is_allowed()) << off;
  }
  setenv("LOCKSTEP_TF32", "1", 1);
  EXPECT_TRUE(tf32_is_allowed());
  unsetenv("LOCKSTEP_TF32");
}

}  // namespace
}  // namespace lockstep
