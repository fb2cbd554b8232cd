// SPDX-License-Identifier: Apache-2.0
// Where a network is cut, and how a split is written.
#include "parallel/split/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "lockstep/parallel/choose_split.h"
#include "lockstep/parallel/split.h"
#include "parallel/split/pipeline.h"
#include "support/error_of.h"

namespace lockstep::parallel {
namespace {

using Stages = std::vector<size_t>;

double largest(const std::vector<double>& costs, const std::vector<int64_t>& devices,
               const std::vector<double>& borders, const Stages& first) {
  double most = 0;
  for (size_t part = 0; part < first.size(); ++part) {
    const size_t end = part + 1 < first.size() ? first[part + 1] : costs.size();
    double cost = std::accumulate(costs.begin() + static_cast<ptrdiff_t>(first[part]),
                                  costs.begin() + static_cast<ptrdiff_t>(end), 0.0);
    if (part > 0) cost += borders[first[part]];
    if (end < costs.size()) cost += borders[end];
    most = std::max(most, cost / static_cast<double>(devices[part]));
  }
  return most;
}

/// The least that any cut gives, by trying them all.
double least(const std::vector<double>& costs, const std::vector<int64_t>& devices, const std::vector<double>& borders,
             Stages first = {0}) {
  if (first.size() == devices.size()) return largest(costs, devices, borders, first);
  double found = std::numeric_limits<double>::infinity();
  for (size_t next = first.back() + 1; next < costs.size(); ++next) {
    first.push_back(next);
    found = std::min(found, least(costs, devices, borders, first));
    first.pop_back();
  }
  return found;
}

TEST(ACut, BeginsPartsWhereItMay) {
  const std::vector<double> costs{1, 1, 1, 3, 1};
  EXPECT_EQ(cut_evenly_at(Stages{0, 1, 4}, costs, std::vector<int64_t>{1, 1}), (Stages{0, 1}));
  EXPECT_EQ(cut_evenly_at(Stages{0, 1, 4}, costs, std::vector<int64_t>{1, 1, 1}), (Stages{0, 1, 4}));
  EXPECT_EQ(cut_evenly_at(Stages{0, 1, 3}, std::vector<double>{2, 1, 2, 1}, std::vector<int64_t>{1, 1},
                          std::vector<int64_t>{3'000'000'000, 0, 1'000'000'000, 0}),
            (Stages{0, 3}));
  // Even parts with much between them, or uneven ones with little: that depends on the link.
  for (const auto& [seconds_a_byte, second] : {std::pair(1e-9, 1), {1e-7, 2}})
    EXPECT_EQ(cut_evenly_at(Stages{0, 1, 2}, std::vector<double>{1, 0.5, 0.5}, std::vector<int64_t>{1, 1},
                            std::vector<int64_t>{50'000'000, 5'000'000, 0}, std::vector<double>{seconds_a_byte}),
              (Stages{0, static_cast<size_t>(second)}));
  EXPECT_EQ(may_begin_part({false, true, false, true, true}), (std::vector<bool>{true, false, false, true, true}));
}

TEST(ACut, MakesTheLargestPartAsSmallAsCanBe) {
  EXPECT_EQ(cut_evenly(std::vector<double>{1, 1, 1, 3}, std::vector<int64_t>{1, 1}), (Stages{0, 3}));
  EXPECT_EQ(cut_evenly(std::vector<double>{1, 1, 1, 3}, std::vector<int64_t>{1, 2}), (Stages{0, 2}));
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> costs(1 + random() % 9);
    for (double& cost : costs) cost = static_cast<double>(random() % 20);
    std::vector<int64_t> devices(1 + random() % costs.size());
    for (int64_t& count : devices) count = 1 + static_cast<int64_t>(random() % 3);
    std::vector<double> borders(costs.size());
    for (double& border : borders) border = round % 2 == 0 ? 0 : static_cast<double>(random() % 20);
    const Stages first = round % 2 == 0 ? cut_evenly(costs, devices) : cut_evenly(costs, devices, borders);
    ASSERT_EQ(first.size(), devices.size());
    EXPECT_EQ(first[0], 0U);
    for (size_t part = 1; part < first.size(); ++part) EXPECT_LT(first[part - 1], first[part]);
    EXPECT_DOUBLE_EQ(largest(costs, devices, borders, first), least(costs, devices, borders));
  }
}

TEST(ASplit, GivesItsDevicesToItsParts) {
  using Devices = std::vector<int64_t>;
  EXPECT_EQ(devices_of_parts(4, 2), (Devices{2, 2}));
  EXPECT_EQ(devices_of_parts(5, 3), (Devices{2, 2, 1}));
  EXPECT_EQ(devices_of_parts(2, 4), (Devices{1, 1}));
  EXPECT_EQ(devices_of_parts(4, 1), (Devices{4}));
}

TEST(ASplit, IsWrittenInAWord) {
  for (const char* word : {"data", "p2", "p17", "t2", "p2t4"}) EXPECT_EQ(to_string(parse_split(word)), word);
  EXPECT_EQ(parse_split("p1"), Split{});
  for (const char* word : {"", "p", "p0", "p-2", "2", "p2x", "p65", "q2", "t0", "t2p2", "p2t"})
    EXPECT_THAT(test::error_of([&] { parse_split(word); }), testing::HasSubstr("expected data, p2 to p64")) << word;
}

StepCost even_stages() {
  const StageCost layer{.name = "layer",
                        .forward = 0.4,
                        .backward = 0.6,
                        .sliced_forward = 0.35,
                        .sliced_backward = 0.55,
                        .sliced_layers = 2,
                        .kept_bytes = 100};
  return {.stages = std::vector<StageCost>(4, layer), .meeting = 0.01};
}

// Eight replicas of four seconds each on two devices: 16 by data, a second's turn more at each end in two parts, and 8
// times 4 - 3.6 / 2 + 0.08 for pairs.
TEST(ForecastOfSplits, CountsTurnsBubblesAndMeetings) {
  const auto all = forecast_splits(even_stages(), {.replicas = 8, .devices = 2, .slices = 2});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(to_string(all[0].split), "data");
  EXPECT_NEAR(all[0].seconds, 16, 1e-9);
  EXPECT_EQ(all[0].bytes, 2 * 400);
  EXPECT_EQ(to_string(all[1].split), "p2");
  EXPECT_NEAR(all[1].seconds, 18, 1e-9);
  EXPECT_EQ(all[1].bytes, 2 * 200 + 200);
  EXPECT_EQ(to_string(all[2].split), "t2");
  EXPECT_NEAR(all[2].seconds, 8 * (4 - 1.8 + 0.08), 1e-9);
  EXPECT_EQ(all[2].bytes, 400);
}

TEST(ForecastOfSplits, PutsFirstWhatKeepsNoMoreThanAllowed) {
  const auto first = [](int64_t most) {
    return to_string(
        forecast_splits(even_stages(), {.replicas = 8, .devices = 2, .slices = 2, .most_bytes = most})[0].split);
  };
  EXPECT_EQ(first(800), "data");
  EXPECT_EQ(first(799), "p2");
  EXPECT_EQ(first(500), "t2");
  EXPECT_EQ(first(1), "t2");  // nothing fits: the least
}

// One replica can't be divided by data, and slices that nobody has can't be shared.
TEST(ForecastOfSplits, SharesSlicesWhereReplicasAreFewerThanDevices) {
  EXPECT_EQ(to_string(forecast_splits(even_stages(), {.replicas = 1, .devices = 4, .slices = 4})[0].split), "t4");
  EXPECT_EQ(to_string(forecast_splits(even_stages(), {.replicas = 1, .devices = 4, .slices = 1})[0].split), "data");
}

std::string splits_of(const SplitQuestion& question) {
  std::string out;
  for (const Split& split : possible_splits(question, 4)) out += (out.empty() ? "" : " ") + to_string(split);
  return out;
}

// Parts are threads where a process has enough of them for all, or processes, which copies of the network must use up.
TEST(PossibleSplits, AreThoseThatATeamTakes) {
  EXPECT_EQ(splits_of({}), "data");
  EXPECT_EQ(splits_of({.devices = 3, .slices = 2}), "data p2 p3 t2");
  EXPECT_EQ(splits_of({.processes = 6}), "data p2 p3");
  EXPECT_EQ(splits_of({.processes = 4, .devices = 2, .slices = 2}), "data p2 p4 t2 p2t2 p4t2");
  EXPECT_EQ(splits_of({.processes = 3, .devices = 2}), "data p2 p3");
  EXPECT_EQ(splits_of({.processes = 3, .devices = 2, .may_be_processes = false}), "data p2");
}

// Gradients of the whole network cross between copies of it, and between parts what they hand on.
TEST(ForecastOfSplits, DividesTheNetworkOverProcessesWhereTheirLinkIsSlow) {
  StepCost cost = even_stages();
  for (int64_t stage = 0; stage < static_cast<int64_t>(cost.stages.size()); ++stage) {
    cost.stages[stage].handed_bytes = cost.stages[stage].returned_bytes = 1000;
    cost.gradients.push_back({.numel = 1000000, .stage = stage});
  }
  const auto first = [&](double bytes_per_second) {
    return to_string(
        forecast_splits(cost, {.replicas = 8, .processes = 2}, {}, {.bytes_per_second = bytes_per_second})[0].split);
  };
  EXPECT_EQ(first(1e9), "data");
  EXPECT_EQ(first(1e5), "p2");
}

}  // namespace
}  // namespace lockstep::parallel
