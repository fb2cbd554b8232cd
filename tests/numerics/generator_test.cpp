// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/detail/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "support/devices.h"

namespace lockstep {
namespace {

constexpr RandomKey kKey{3, 4};

class KeyedGenerator : public testing::TestWithParam<at::Device> {
 protected:
  // Operations of libtorch that draw numbers, each with its own way into the generator.
  std::map<std::string, std::function<at::Tensor(const at::Generator&)>> operations() const {
    const auto options = at::TensorOptions().device(GetParam());
    return {
        {"bernoulli", [=](const at::Generator& g) { return at::bernoulli(at::full({1000}, 0.4, options), g); }},
        {"normal", [=](const at::Generator& g) { return at::normal(0.0, 1.0, {1001}, g, options); }},
        {"few normals", [=](const at::Generator& g) { return at::randn({7}, g, options); }},
        {"double normals", [=](const at::Generator& g) { return at::randn({7}, g, options.dtype(at::kDouble)); }},
        {"uniform", [=](const at::Generator& g) { return at::rand({1000}, g, options); }},
        {"integers", [=](const at::Generator& g) { return at::randint(100, {1000}, g, options); }},
        {"permutation", [=](const at::Generator& g) { return at::randperm(1000, g, options); }},
        {"dropout mask", [=](const at::Generator& g) { return at::empty({1000}, options).bernoulli_(0.5, g); }},
        {"multinomial",
         [=](const at::Generator& g) { return at::multinomial(at::ones({100}, options), 50, false, g); }},
    };
  }
};
INSTANTIATE_TEST_SUITE_P(On, KeyedGenerator, every_device(), device_name);

TEST_P(KeyedGenerator, OneKeyGivesOneSequenceAndAnotherKeyAnother) {
  SKIP_WITHOUT_DEVICE();
  for (const auto& [name, draw] : operations()) {
    const at::Tensor first = draw(keyed_generator(kKey, GetParam()));
    EXPECT_TRUE(draw(keyed_generator(kKey, GetParam())).equal(first)) << name;
    EXPECT_FALSE(draw(keyed_generator({3, 5}, GetParam())).equal(first)) << name;
    EXPECT_FALSE(draw(keyed_generator({4, 4}, GetParam())).equal(first)) << name;
    EXPECT_FALSE(draw(keyed_generator({3 + (uint64_t{1} << 32), 4}, GetParam())).equal(first)) << name;
  }
}

TEST_P(KeyedGenerator, ReKeyingStartsTheSequenceWhateverWasDrawnBefore) {
  SKIP_WITHOUT_DEVICE();
  const at::Generator used = keyed_generator({9, 9}, GetParam());
  for (const auto& [name, draw] : operations()) {
    const at::Tensor first = draw(keyed_generator(kKey, GetParam()));
    for (const auto& [other_name, other] : operations()) {
      other(used);
      rekey(used, kKey);
      EXPECT_TRUE(draw(used).equal(first)) << name << " after " << other_name;
    }
    EXPECT_FALSE(draw(used).equal(first)) << name << ", drawn on";
  }
}

TEST_P(KeyedGenerator, LeavesTheDefaultGeneratorAlone) {
  SKIP_WITHOUT_DEVICE();
  const at::Generator standard = at::globalContext().defaultGenerator(GetParam());
  const at::Tensor before = standard.get_state();
  for (const auto& [name, draw] : operations()) draw(keyed_generator(kKey, GetParam()));
  EXPECT_TRUE(standard.get_state().equal(before));
}

TEST(KeyedCpuGenerator, ThreadsThatDrawAtOnceGetWhatTheyGetAlone) {
  const auto draw = [](uint64_t stream) { return at::randn({10'000}, keyed_generator({7, stream})); };
  at::Tensor alone[4], together[4];
  for (uint64_t i = 0; i < 4; ++i) alone[i] = draw(i);
  {
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { together[i] = draw(i); });
  }
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(together[i].equal(alone[i]));
}

TEST(KeyedCpuGenerator, NormalNumbersHaveTheRightMoments) {
  // Many generators of few numbers each: what a poor state of the twister would spoil first.
  const at::Generator generator = keyed_generator(kKey);
  double sum = 0, squares = 0;
  constexpr int draws = 2000, size = 50;
  for (int i = 0; i < draws; ++i) {
    rekey(generator, kKey.fold(static_cast<uint64_t>(i)));
    const at::Tensor x = at::randn({size}, generator, at::kDouble);
    sum += x.sum().item<double>();
    squares += x.square().sum().item<double>();
  }
  constexpr double count = draws * size;
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
}

TEST(KeyedCpuGenerator, ItsStateIsValidAndCanBeSavedAndRestored) {
  at::Generator generator = keyed_generator(kKey);
  EXPECT_TRUE(generator.get<at::CPUGeneratorImpl>()->engine().is_valid());
  const at::Tensor state = generator.get_state();
  const at::Tensor drawn = at::rand({10}, generator);
  generator.set_state(state);
  EXPECT_TRUE(at::rand({10}, generator).equal(drawn));
}

TEST(KeyedCpuGenerator, ADeviceThatIsNeitherCpuNorCudaIsAnError) {
  EXPECT_THROW(keyed_generator(kKey, at::Device(at::kMeta)), Error);
  EXPECT_THROW(rekey(at::Generator(), kKey), Error);
}

}  // namespace
}  // namespace lockstep
