// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

std::vector<int64_t> epoch_of(const Order& order, int64_t epoch) {
  std::vector<int64_t> ids(order.size());
  order.fill(epoch, 0, ids);
  return ids;
}

bool is_permutation_of_all(std::vector<int64_t> ids, int64_t examples) {
  std::ranges::sort(ids);
  std::vector<int64_t> all(examples);
  std::iota(all.begin(), all.end(), int64_t{0});
  return ids == all;
}

std::vector<int64_t> uneven_classes() {
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < 103; ++i) classes.push_back(i % 7 == 0 ? 3 : i % 5 == 0 ? 0 : 1);  // and none of class 2
  return classes;
}

std::vector<Order> all_orders() {
  return {Order::shuffled(97, 3),
          Order::sequential(97),
          Order::weighted({1, 0, 3, 0.5}, 3, 50),
          Order::grouped(uneven_classes(), 3),
          Order::grouped(uneven_classes(), 3, 8),
          Order::of(10, {9, 1, 1, 3}),
          Order::of(10, 20, [](int64_t epoch, int64_t position) { return (position * 3 + epoch) % 10; })};
}

TEST(Order, AnyPartIsThatPartOfTheWhole) {
  for (const Order& order : all_orders())
    for (const int64_t epoch : {0, 5}) {
      const auto whole = epoch_of(order, epoch);
      for (int64_t begin = 0; begin < order.size(); begin += 7) {
        std::vector<int64_t> part(std::min<int64_t>(11, order.size() - begin));
        order.fill(epoch, begin, part);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << order.describe();
        ASSERT_EQ(order(epoch, begin), whole[begin]) << order.describe();
      }
    }
}

TEST(Order, ItSaysTruthfullyWhetherAnEpochHasEachExampleOnce) {
  for (const Order& order : all_orders())
    for (const int64_t epoch : {0, 1, 2})
      EXPECT_EQ(order.exactly_once(epoch), is_permutation_of_all(epoch_of(order, epoch), order.examples()))
          << order.describe();
  EXPECT_TRUE(Order::of(3, {2, 0, 1}).exactly_once());
  EXPECT_FALSE(Order::of(3, {2, 0, 2}).exactly_once());
  EXPECT_TRUE(Order::of(10, 10, [](int64_t epoch, int64_t i) { return (i * 3 + epoch) % 10; }).exactly_once(7));
}

TEST(Order, ShufflingDiffersFromEpochToEpochAndFromSeedToSeed) {
  const Order order = Order::shuffled(1000, 1);
  EXPECT_NE(epoch_of(order, 0), epoch_of(order, 1));
  EXPECT_NE(epoch_of(order, 0), epoch_of(Order::shuffled(1000, 2), 0));
  EXPECT_EQ(epoch_of(order, 4), epoch_of(Order::shuffled(1000, 1), 4));
}

TEST(Order, WeightedDrawsExamplesAsOftenAsTheirWeightsSay) {
  const std::vector<double> weights{1, 0, 3, 0.5, 0};
  const Order order = Order::weighted(weights, 5, 40000);
  std::vector<double> counts(5);
  for (const int64_t id : epoch_of(order, 0)) ++counts[id];
  EXPECT_EQ(counts[1] + counts[4], 0);
  for (const size_t id : {0u, 2u, 3u}) {
    const double expected = 40000 * weights[id] / 4.5;
    EXPECT_NEAR(counts[id], expected, 5 * std::sqrt(expected)) << id;
  }
}

TEST(Order, GroupedHasRunsOfOneClass) {
  const auto classes = uneven_classes();
  const auto ids = epoch_of(Order::grouped(classes, 1, 8), 2);
  size_t full = 0;
  for (const int64_t c : {0, 1, 3}) full += std::ranges::count(classes, c) / 8;
  for (size_t run = 0; run < full; ++run)
    for (size_t i = 1; i < 8; ++i) EXPECT_EQ(classes[ids[run * 8 + i]], classes[ids[run * 8]]);
  int changes = 0;
  const auto whole = epoch_of(Order::grouped(classes, 1), 2);
  for (size_t i = 1; i < whole.size(); ++i) changes += classes[whole[i]] != classes[whole[i - 1]];
  EXPECT_EQ(changes, 2) << "three classes occur";
  EXPECT_NE(whole, epoch_of(Order::grouped(classes, 1), 3));
}

TEST(Order, MistakesAreErrorsThatSayWhatWasGot) {
  EXPECT_THAT(error_of([] { Order::of(3, {0, 3}); }), HasSubstr("id 1 is 3, expected one in [0, 3)"));
  const Order wrong = Order::of(3, 5, [](int64_t, int64_t position) { return position; });
  EXPECT_THAT(error_of([&] { epoch_of(wrong, 1); }), HasSubstr("position 3 of epoch 1 has the id 3"));
  EXPECT_FALSE(wrong.exactly_once());
  EXPECT_THAT(error_of([] { Order::sequential(3)(0, 3); }), HasSubstr("expected a part of [0, 3)"));
  EXPECT_NE(error_of([] { Order::sequential(3)(-1, 0); }), "no error");
  EXPECT_NE(error_of([] { Order::shuffled(0, 1); }), "no error");
  EXPECT_NE(error_of([] { Order::weighted({0, 0}, 1); }), "no error");
  EXPECT_NE(error_of([] { Order::weighted({1, -1}, 1); }), "no error");
  EXPECT_NE(error_of([] { Order::weighted({1, std::numeric_limits<double>::infinity()}, 1); }), "no error");
  EXPECT_NE(error_of([] { Order::grouped({0, -1}, 1); }), "no error");
}

}  // namespace
}  // namespace lockstep::data
