// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/random.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "support/devices.h"

namespace lockstep {
namespace {

constexpr RandomKey key{1234, 5678};

// P(normal < x), to about 16 digits in the lower tail.
double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// The expected numbers come from a second implementation, in Python; those that are not exact have an error bound.
TEST(Random, ScalarsAreTheSameOnEveryPlatform) {
  EXPECT_EQ(uniform_float(key, 0), 0.4505200982093811f);
  EXPECT_EQ(uniform_float(key, 3), 0.8634656071662903f);
  EXPECT_EQ(uniform(key, 0), 0.8964208409773465);
  EXPECT_EQ(uniform(key, 1), 0.8634656449180008);
  EXPECT_NEAR(normal(key, 0), 1.2614179123852305, 1e-14);
  EXPECT_NEAR(normal(key, 1), 1.096022998005018, 1e-14);
}

// No compiler, flag or CPU may change a bit of these. The hash comes from a second implementation, in Python.
TEST(Random, NormalNumbersHaveTheSameBitsEverywhere) {
  uint64_t hash = 0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const double x = normal(key, i);
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    hash = philox4x32_10(hash, bits, i).pair(0);
  }
  EXPECT_EQ(hash, 0x821465d1a67c92e0u) << std::hex << hash;
}

TEST(Random, NormalInvertsTheNormalDistributionFunction) {
  for (uint64_t i = 0; i < 20'000; ++i) {
    const double p = (static_cast<double>(key.block(i / 2).pair(i % 2) >> 12) + 0.5) * 0x1p-52;
    const double x = normal(key, i);
    // Compare in the tail that is small, where the difference shows.
    const double expected = std::min(p, 1 - p), got = normal_cdf(p < 0.5 ? x : -x);
    ASSERT_NEAR(got / expected, 1, 1e-13) << "p " << p;
  }
}

TEST(Random, NormalHasTheMomentsAndTailsOfTheDistribution) {
  constexpr int count = 1'000'000;
  double moment[5] = {};
  int beyond[6] = {};
  for (uint64_t i = 0; i < count; ++i) {
    const double x = normal(key, i);
    double power = 1;
    for (double& sum : moment) {
      sum += power / count;
      power *= x;
    }
    for (int z = 1; z < 6; ++z) beyond[z] += std::abs(x) > z;
  }
  const double tolerance = 5 / std::sqrt(count);  // five standard deviations, times that of the power
  EXPECT_NEAR(moment[1], 0, tolerance);
  EXPECT_NEAR(moment[2], 1, tolerance * std::sqrt(2));
  EXPECT_NEAR(moment[3], 0, tolerance * std::sqrt(15));
  EXPECT_NEAR(moment[4], 3, tolerance * std::sqrt(96));
  for (int z = 1; z < 6; ++z) {
    const double expected = count * 2 * normal_cdf(-z);
    EXPECT_NEAR(beyond[z], expected, 5 * std::sqrt(expected) + 1) << "beyond " << z;
  }
}

TEST(Random, UniformNumbersFillTheirRangeEvenly) {
  constexpr int count = 400'000, cells = 256;
  std::vector<int> of_float(cells), of_double(cells);
  for (uint64_t i = 0; i < count; ++i) {
    const float x = uniform_float(key, i);
    const double y = uniform(key, i);
    ASSERT_TRUE(x >= 0 && x < 1 && y >= 0 && y < 1);
    ++of_float[static_cast<size_t>(x * cells)];
    ++of_double[static_cast<size_t>(y * cells)];
  }
  for (const auto& cell : {of_float, of_double}) {
    double chi_square = 0;
    for (int observed : cell) chi_square += std::pow(observed - 1.0 * count / cells, 2) * cells / count;
    EXPECT_NEAR(chi_square, cells - 1, 5 * std::sqrt(2.0 * cells));
  }
}

TEST(Random, BernoulliKeepsItsProbabilityAndItsEnds) {
  constexpr int count = 200'000;
  for (double probability : {0.0, 1e-3, 0.1, 0.5, 0.9, 1.0}) {
    int ones = 0;
    for (uint64_t i = 0; i < count; ++i) ones += bernoulli(key, i, probability);
    EXPECT_NEAR(ones, count * probability, 5 * std::sqrt(count * probability * (1 - probability))) << probability;
  }
  for (double wrong : {-0.1, 1.1, std::nan("")}) EXPECT_THROW(bernoulli(key, 0, wrong), Error) << wrong;
}

TEST(Random, BelowGivesEveryIntegerAsOften) {
  constexpr int count = 200'000;
  for (uint64_t bound : {1, 2, 3, 10, 97}) {
    std::vector<double> times(bound);
    for (uint64_t i = 0; i < count; ++i) ++times.at(below(key, i, bound));
    double chi_square = 0;
    const double expected = count / static_cast<double>(bound), freedom = static_cast<double>(bound - 1);
    for (double observed : times) chi_square += (observed - expected) * (observed - expected) / expected;
    EXPECT_LE(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << "bound " << bound;
  }
  EXPECT_THROW(below(key, 0, 0), Error);
}

// With the bound 3/4 of the range, a remainder alone would give the lowest third twice as often.
TEST(Random, BelowIsWithoutBiasWhereTheBoundIsNearTheWholeRange) {
  constexpr uint64_t bound = 3ull << 62;
  constexpr int count = 60'000;
  int third[3] = {};
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t value = below(key, i, bound);
    ASSERT_LT(value, bound);
    ++third[value / (1ull << 62)];
  }
  for (int observed : third) EXPECT_NEAR(observed, count / 3.0, 5 * std::sqrt(count * 2 / 9.0));
}

class RandomFill : public testing::TestWithParam<at::Device> {
 protected:
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) const {
    return at::empty(sizes, at::TensorOptions().device(GetParam()).dtype(dtype));
  }
};
INSTANTIATE_TEST_SUITE_P(On, RandomFill, every_device(), device_name);

TEST_P(RandomFill, ElementsAreTheNumbersOfTheKeyFromTheOffsetOn) {
  SKIP_WITHOUT_DEVICE();
  constexpr int64_t size = 37;
  for (uint64_t offset : {0, 1, 2, 3, 4, 1001}) {
    const at::Tensor floats = uniform_(empty({size}), key, offset).cpu();
    const at::Tensor doubles = uniform_(empty({size}, at::kDouble), key, offset).cpu();
    const at::Tensor normals = normal_(empty({size}, at::kDouble), key, offset).cpu();
    const at::Tensor mask = bernoulli_(empty({size}, at::kBool), 0.3, key, offset).cpu();
    for (int64_t i = 0; i < size; ++i) {
      const uint64_t index = offset + static_cast<uint64_t>(i);
      EXPECT_EQ(floats[i].item<float>(), uniform_float(key, index));
      EXPECT_EQ(doubles[i].item<double>(), uniform(key, index));
      EXPECT_EQ(normals[i].item<double>(), normal(key, index));
      EXPECT_EQ(mask[i].item<bool>(), bernoulli(key, index, 0.3));
    }
  }
}

TEST_P(RandomFill, FillingInPartsIsFillingTheWhole) {
  SKIP_WITHOUT_DEVICE();
  for (auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor whole = normal_(empty({100'003}, dtype), key, 11);
    const at::Tensor parts = empty({100'003}, dtype);
    for (int64_t begin = 0; begin < parts.numel(); begin += 33'333)
      normal_(parts.slice(0, begin, begin + 33'333), key, 11 + static_cast<uint64_t>(begin));
    EXPECT_TRUE(whole.equal(parts)) << dtype;
  }
}

TEST_P(RandomFill, StridesChangeNoValue) {
  SKIP_WITHOUT_DEVICE();
  const at::Tensor plain = uniform_(empty({3, 4, 5, 6}), key);
  const at::Tensor channels_last = empty({3, 4, 5, 6}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor every_second = empty({6, 4, 5, 6}).slice(0, 0, 6, 2);
  EXPECT_TRUE(uniform_(channels_last, key).equal(plain));
  EXPECT_TRUE(uniform_(every_second, key).equal(plain));
}

TEST_P(RandomFill, NarrowTypesStayBelowOneAndKeepTheirMean) {
  SKIP_WITHOUT_DEVICE();
  for (auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor values = uniform_(empty({200'000}, dtype), key).to(at::kDouble);
    EXPECT_LT(values.max().item<double>(), 1) << dtype;
    EXPECT_GE(values.min().item<double>(), 0) << dtype;
    // A number is a cell's lower bound: the mean lacks half a cell, 2^-9 in bfloat16.
    EXPECT_NEAR(values.mean().item<double>(), 0.5 - (dtype == at::kBFloat16 ? 0x1p-9 : 0), 0.004) << dtype;
    const at::Tensor normals = normal_(empty({200'000}, dtype), key).to(at::kDouble);
    EXPECT_NEAR(normals.mean().item<double>(), 0, 0.012) << dtype;
    EXPECT_NEAR(normals.std().item<double>(), 1, 0.01) << dtype;
  }
}

TEST_P(RandomFill, BernoulliWritesZerosAndOnesOfAnyDtype) {
  SKIP_WITHOUT_DEVICE();
  const at::Tensor expected = bernoulli_(empty({1000}, at::kBool), 0.25, key);
  for (auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong})
    EXPECT_TRUE(bernoulli_(empty({1000}, dtype), 0.25, key).equal(expected.to(dtype))) << dtype;
}

TEST_P(RandomFill, PermutationWritesASliceOfTheKeyedOrder) {
  SKIP_WITHOUT_DEVICE();
  const KeyedPermutation order(key, 1000);
  const at::Tensor whole = permutation_(empty({1000}, at::kLong), key, 1000);
  const at::Tensor slice = permutation_(empty({10}, at::kLong), key, 1000, 990);
  EXPECT_TRUE(slice.equal(whole.slice(0, 990)));
  EXPECT_EQ(whole[17].item<int64_t>(), order(17));
  EXPECT_TRUE(std::get<0>(whole.sort()).equal(at::arange(1000, whole.options())));
  EXPECT_THROW(permutation_(empty({10}, at::kLong), key, 1000, 991), Error);
}

TEST_P(RandomFill, EmptyTensorsAndScalarsAreFilled) {
  SKIP_WITHOUT_DEVICE();
  EXPECT_EQ(uniform_(empty({0, 3}), key).numel(), 0);
  EXPECT_EQ(permutation_(empty({0}, at::kLong), key, 0).numel(), 0);
  EXPECT_EQ(uniform_(empty({}), key, 5).item<float>(), uniform_float(key, 5));
}

TEST_P(RandomFill, AParameterIsFilledOutsideAutogradAndItsVersionMovesOn) {
  SKIP_WITHOUT_DEVICE();
  for (bool contiguous : {true, false}) {
    at::Tensor base = at::zeros({4, 4}, at::TensorOptions().device(GetParam()));
    at::Tensor parameter = (contiguous ? base : base.t()).requires_grad_();
    const auto version = parameter._version();
    normal_(parameter, key);
    EXPECT_TRUE(parameter.is_leaf());
    EXPECT_GT(parameter._version(), version);
    EXPECT_EQ(parameter.flatten()[6].item<float>(), normal_(empty({16}), key)[6].item<float>());
  }
}

TEST_P(RandomFill, ADtypeThatTheDrawDoesNotKnowIsAnErrorThatListsThoseItDoes) {
  SKIP_WITHOUT_DEVICE();
  try {
    uniform_(empty({2}, at::kLong), key);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "uniform_: tensor has dtype int64, expected float32, float64, float16, bfloat16");
  }
  EXPECT_THROW(permutation_(empty({2}), key, 2), Error);
  EXPECT_THROW(bernoulli_(empty({2}), 2.0, key), Error);
  EXPECT_THROW(uniform_(at::Tensor(), key), Error);
}

}  // namespace
}  // namespace lockstep
