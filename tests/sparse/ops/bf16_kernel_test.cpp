// SPDX-License-Identifier: Apache-2.0
#include "sparse/ops/cpu/bf16_kernel.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/sparse/convolution.h"
#include "lockstep/sparse/kernel_region.h"
#include "support/clouds.h"

namespace lockstep::sparse {
namespace {

float wide(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Normal numbers, of magnitudes that make each rounding count.
std::vector<uint16_t> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<uint16_t>((random() & 1) << 15 | (122 + random() % 10) << 7 | (random() & 127)));
  return values;
}

template <class T>
std::vector<const T*> rows_of(const std::vector<T>& values, int64_t count, int64_t width) {
  std::vector<const T*> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(values.data() + i * width);
  return rows;
}

/// What a pair of products adds, as the header states it: the odd place first, each addition rounded.
float add_pair(float sum, uint16_t even, uint16_t other_even, uint16_t odd, uint16_t other_odd) {
  sum += wide(odd) * wide(other_odd);
  return sum + wide(even) * wide(other_even);
}

class Bf16Kernel : public testing::Test {
 protected:
  void SetUp() override {
    if (bf16_kernels() == nullptr) GTEST_SKIP() << "this processor has no AVX512-BF16, or a lower level is set";
  }
};

TEST_F(Bf16Kernel, RowsTimesWeightsAreTheStatedSumsToTheBit) {
  const auto& kernel = *bf16_kernels();
  for (const int64_t count : {1, 7, 8, 21})
    for (const int64_t k : {2, 6, 34})
      for (const int64_t n : {1, 15, 16, 17, 33, 48})
        for (const bool transposed : {false, true}) {
          const auto x = random_values(count * k, 1), w = random_values(k * n, 2);
          const int64_t row_stride = transposed ? 1 : n, column_stride = transposed ? k : 1, width = kernel.padded(n);
          std::vector<uint16_t> panels(k * width);
          kernel.pack(w.data(), k, n, row_stride, column_stride, panels.data());
          std::vector<float> sums(count * width, 3.0F);
          std::vector<float*> to;
          for (int64_t r = 0; r < count; ++r) to.push_back(sums.data() + r * width);
          kernel.multiply(rows_of(x, count, k).data(), to.data(), count, k, n, panels.data());
          for (int64_t r = 0; r < count; ++r)
            for (int64_t j = 0; j < n; ++j) {
              float expected = 0;
              for (int64_t i = 0; i < k; i += 2)
                expected = add_pair(expected, x[r * k + i], w[i * row_stride + j * column_stride], x[r * k + i + 1],
                                    w[(i + 1) * row_stride + j * column_stride]);
              ASSERT_EQ(sums[r * width + j], 3.0F + expected) << count << " rows, " << k << " to " << n << " channels";
            }
        }
}

TEST_F(Bf16Kernel, ProductsOfRowsAreTheStatedSumsToTheBit) {
  const auto& kernel = *bf16_kernels();
  for (const int64_t count : {1, 2, 9})
    for (const int64_t m : {1, 3, 8, 13, 70})
      for (const int64_t n : {1, 16, 20, 40}) {
        const auto a = random_values(count * m, 3), b = random_values(count * n, 4);
        const int64_t width = kernel.padded(n);
        std::vector<float> sums(m * width, 1.0F);
        std::vector<uint16_t> scratch(kernel.outer_scratch(count, m));
        kernel.outer(rows_of(a, count, m).data(), rows_of(b, count, n).data(), count, m, n, sums.data(),
                     scratch.data());
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            float expected = 0;
            for (int64_t p = 0; p < count; p += 2) {
              const bool both = p + 1 < count;
              expected = add_pair(expected, a[p * m + i], b[p * n + j], both ? a[(p + 1) * m + i] : 0,
                                  both ? b[(p + 1) * n + j] : 0);
            }
            ASSERT_EQ(sums[i * width + j], 1.0F + expected) << count << " pairs, " << m << " by " << n;
          }
      }
}

TEST_F(Bf16Kernel, SumsAreRoundedToTheNearestValue) {
  const std::vector<float> sums = {1.0F, 1.00390625F, 1.01171875F, -3.14159F, 0.0F, 1e30F};
  std::vector<uint16_t> to(sums.size() + 1, 7);
  bf16_kernels()->store(sums.data(), static_cast<int64_t>(sums.size()), to.data());
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(wide(to[i]), static_cast<float>(at::BFloat16(sums[i]))) << sums[i];
  EXPECT_EQ(to.back(), 7) << "what lies behind is not written";
}

/// All three products of a convolution in bfloat16, at a level.
std::vector<at::Tensor> products(const KernelMapPtr& map, const at::Tensor& x, const at::Tensor& w, const at::Tensor& g,
                                 int64_t groups, CpuLevel level) {
  const ScopedCpuLevel scoped(level);
  const at::Tensor rows = x.detach().requires_grad_(), weights = w.detach().requires_grad_();
  const at::Tensor y = convolve(rows, weights, map, groups);
  y.backward(g);
  return {y.detach(), rows.grad(), weights.grad()};
}

TEST(Bf16Convolution, IsTheFloatOneRoundedAtEveryCpuLevelForAnyNumberOfThreads) {
  const auto in = CoordinateMap::insert(test::random_cloud(2000, 3, -9, 9, 2, 5)).map;
  const std::vector<int64_t> ones(3, 1);
  const auto map = KernelMap::build(in, in, KernelRegion::hypercube({3, 3, 3}, ones).offsets(ones));
  const int threads = at::get_num_threads();
  at::manual_seed(7);
  for (const auto& [from, to, groups] : {std::array<int64_t, 3>{32, 48, 1}, {3, 20, 1}, {64, 13, 1}, {8, 24, 4}}) {
    const auto values = [](at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16); };
    const at::Tensor x = values({in->size(), from}), w = values({27, from / groups, to}), g = values({in->size(), to});
    const auto expected = products(map, x.to(at::kFloat), w.to(at::kFloat), g.to(at::kFloat), groups, cpu_level());
    for (const CpuLevel level : available_cpu_levels()) {
      at::set_num_threads(1);
      const auto one = products(map, x, w, g, groups, level);
      at::set_num_threads(2);
      const auto two = products(map, x, w, g, groups, level);
      for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(at::equal(one[i], two[i])) << "product " << i << " at level " << to_string(level);
        const double scale = expected[i].abs().max().item<double>();
        EXPECT_LE((one[i].to(at::kFloat) - expected[i]).abs().max().item<double>(), scale / 256)
            << "product " << i << " of " << from << " to " << to << " channels at level " << to_string(level);
      }
    }
    at::set_num_threads(threads);
  }
}

}  // namespace
}  // namespace lockstep::sparse
