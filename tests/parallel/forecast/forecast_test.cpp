// SPDX-License-Identifier: Apache-2.0
// Steps whose times are known by hand.
#include "lockstep/parallel/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace lockstep::parallel {
namespace {

constexpr double kExact = 1e-9;

/// So many stages of a second each, 0.4 of it forwards.
StepCost even(int64_t stages) {
  return {.stages = std::vector<StageCost>(stages, {.name = "layer", .forward = 0.4, .backward = 0.6})};
}

/// The same with a weight in each.
StepCost trained(int64_t stages) {
  StepCost cost = even(stages);
  for (int64_t stage = stages; stage-- > 0;) cost.gradients.push_back({.numel = 1, .stage = stage, .at = 0.6});
  return cost;
}

double total(const StepForecast& step) {
  return step.forward + step.backward + step.update + step.data + step.communication + step.bubble + step.wait;
}

TEST(AForecast, IsTheWorkDividedByTheDevicesWhereNothingTravels) {
  for (const int64_t devices : {1, 2, 4, 8}) {
    const auto step = forecast_step(even(3), {.blocks = Placement({8}), .devices = devices});
    EXPECT_NEAR(step.seconds, 8.0 * 3 / static_cast<double>(devices), kExact);
    EXPECT_NEAR(step.wait, 0, kExact);
    EXPECT_NEAR(total(step), step.seconds, kExact);
    EXPECT_EQ(step.bytes_sent, 0);
  }
}

TEST(AForecast, CountsTheTurnsThatReplicasTake) {
  const auto step = forecast_step(even(1), {.blocks = Placement({8}), .devices = 3});
  EXPECT_NEAR(step.seconds, 3, kExact);  // 3 + 3 + 2
  EXPECT_NEAR(step.wait, 1.0 / 3, kExact);
}

// 1F1B with p even stages and m micro-batches: a bubble of (p - 1) / (m + p - 1).
TEST(AForecast, OfAPipelineHasTheBubbleOf1F1B) {
  for (const int64_t parts : {2, 4})
    for (const int64_t replicas : {4, 8, 16}) {
      const auto step = forecast_step(
          even(parts), {.blocks = Placement({replicas}), .devices = parts, .split = {.parts = parts}, .steps = 2});
      const auto p = static_cast<double>(parts), m = static_cast<double>(replicas);
      EXPECT_NEAR(step.seconds, m + p - 1, kExact) << parts << " parts, " << replicas << " replicas";
      EXPECT_NEAR(step.bubble / step.seconds, (p - 1) / (m + p - 1), kExact);
      EXPECT_NEAR(total(step), step.seconds, kExact);
    }
}

// The same schedule where each part is a process, and nothing that crosses takes time.
TEST(AForecast, OfPartsThatAreProcessesHasTheBubbleOf1F1B) {
  const LinkCost link{.bytes_per_second = 1e15};
  for (const int64_t parts : {2, 4})
    for (const int64_t replicas : {4, 8, 16}) {
      const auto step = forecast_step(
          trained(parts),
          {.blocks = Placement({replicas}), .split = {.parts = parts}, .parts_are_processes = true, .steps = 2}, {},
          link);
      const auto p = static_cast<double>(parts), m = static_cast<double>(replicas);
      EXPECT_NEAR(step.seconds, m + p - 1, 1e-6) << parts << " parts, " << replicas << " replicas";
      EXPECT_NEAR(step.bubble / step.seconds, (p - 1) / (m + p - 1), 1e-6);
      EXPECT_NEAR(total(step), step.seconds, 1e-6);
      EXPECT_EQ(step.gradient_bytes, 4);
    }
}

// Four layers a part, of three seconds in all: forwards, backwards, and gradients of weights, for which nobody waits.
// Where a part is a process, no more of the bubble is left than the first replica's way forwards. On threads any device
// may compute them, and who has ended helps; nothing is put off in the first part.
TEST(AForecast, LeavesGradientsOfWeightsForTheBubble) {
  const LinkCost link{.bytes_per_second = 1e15};
  for (const int64_t parts : {2, 4})
    for (const int64_t replicas : {8, 16}) {
      StepCost cost = trained(4 * parts);
      for (StageCost& stage : cost.stages) {
        stage.forward = 0.25;
        stage.backward = 0.5;
        stage.late_backward = 0.275;
      }
      const auto seconds = [&](bool processes) {
        return forecast_step(cost,
                             {.blocks = Placement({replicas}),
                              .devices = processes ? 1 : parts,
                              .split = {.parts = parts},
                              .parts_are_processes = processes,
                              .steps = 2},
                             {}, link)
            .seconds;
      };
      const auto p = static_cast<double>(parts), work = 3.0 * static_cast<double>(replicas);
      EXPECT_NEAR(seconds(true), work + (p - 1), 0.11 * p) << parts << " parts, " << replicas << " replicas";
      EXPECT_NEAR(seconds(false), work + (parts == 2 ? 1 : 4.5), 0.25)
          << parts << " parts, " << replicas << " replicas";
    }
}

// One replica passes two parts: what is handed on, the output and the gradients cross one behind another.
TEST(AForecast, WaitsForWhatCrossesBetweenProcesses) {
  StepCost cost = trained(2);
  for (StageCost& stage : cost.stages) {
    stage.handed_bytes = stage.returned_bytes = 1'000'000;
    stage.handed_tensors = stage.returned_tensors = 1;
  }
  const StepPlacement placement{.blocks = Placement({1}), .split = {.parts = 2}, .parts_are_processes = true};
  const LinkCost link{.latency = 0.1, .bytes_per_second = 1e6, .message = 0.01};
  const double crossing = 1.002048 + 0.1 + 2 * 0.01;  // with the label of 2 KiB
  const auto step = forecast_step(cost, placement, {}, link);
  const double agreement = 0.1 + 0.01 + 14 * 8e-6;
  // The output leaves before the gradients do, by the same way.
  EXPECT_NEAR(step.seconds, 0.4 + crossing + 0.4 + (crossing - 0.1) + crossing + 0.6 + agreement, 1e-6);
  EXPECT_EQ(step.bytes_sent, 2 * (1'000'000 + 2048));
}

// Two copies of two parts: gradients are summed among the two that hold the same part.
TEST(AForecast, SumsAPartsGradientsAmongItsCopies) {
  StepCost cost = trained(2);
  cost.gradients = {{.numel = 1 << 20, .stage = 1, .at = 0.6}, {.numel = 1 << 20, .at = 0.6}};
  StepPlacement placement{.blocks = Placement({4, 4}), .split = {.parts = 2}, .parts_are_processes = true, .steps = 2};
  const auto step = forecast_step(cost, placement, {}, {.bytes_per_second = 1e15});
  EXPECT_NEAR(step.seconds, 4 + 1, 1e-3);
  EXPECT_GE(step.bytes_sent, 1 << 22);
  EXPECT_LT(step.bytes_sent, 1.1 * (1 << 22));
  // Copies whose replicas' shares differ wait for each other.
  placement.share = [](int64_t, int64_t replica) { return replica < 4 ? 1.0 : 2.0; };
  EXPECT_NEAR(forecast_step(cost, placement, {}, {.bytes_per_second = 1e15}).seconds, 2 * (4 + 1), 1e-3);
}

TEST(AForecast, DividesTheUpdateOverThoseThatMeet) {
  StepCost cost = even(1);
  cost.gradients = std::vector<GradientCost>(4, {.numel = 1 << 20});
  cost.sum_row = 0.1;
  cost.update = 0.8;
  const auto step = forecast_step(cost, {.blocks = Placement({8}), .devices = 2});
  EXPECT_NEAR(step.seconds, 4 + (0.8 + 8 * 0.1) / 2, kExact);
  EXPECT_NEAR(step.update, 0.8, kExact);
}

TEST(AForecast, SlowsThreadsThatComputeAtOnce) {
  const Slowdown slowdown{.passes = {1, 1.5}, .memory = {1, 2}};
  StepCost cost = even(1);
  cost.gradients = {{.numel = 1 << 20}};
  cost.update = 1;
  EXPECT_NEAR(forecast_step(cost, {.blocks = Placement({2}), .devices = 2}, slowdown).seconds, 1.5 + 0.5 * 2, kExact);
  // Three threads on two cores take turns.
  EXPECT_NEAR(forecast_step(even(1), {.blocks = Placement({3}), .devices = 3, .cores = 2}).seconds, 1.5, kExact);
}

TEST(AForecast, SlowsThreadsOfAProcessByNumbersOfTheirOwn) {
  const Slowdown slowdown{.passes = {1, 1.1}, .memory = {1, 1}, .thread_passes = {1, 1.5}, .thread_memory = {1, 1}};
  EXPECT_NEAR(forecast_step(even(1), {.blocks = Placement({2}), .devices = 2}, slowdown).seconds, 1.5, kExact);
  const LinkCost link{.bytes_per_second = 1e15};
  EXPECT_NEAR(forecast_step(even(1), {.blocks = Placement({1, 1}), .host_processes = 2}, slowdown, link).seconds, 1.1,
              1e-6);
  const Slowdown turns{.thread_passes = {1, 1}, .thread_memory = {1, 1}, .thread_turn = {0, 0.25}};
  const auto step = forecast_step(even(1), {.blocks = Placement({4}), .devices = 2}, turns);
  EXPECT_NEAR(step.seconds, 2 * 1.25, kExact);
  EXPECT_NEAR(step.wait, 2 * 0.25, kExact);
}

TEST(AForecast, SendsWhatARingSends) {
  StepCost cost = even(1);
  constexpr int64_t numel = int64_t{1} << 20;
  cost.gradients = {{.numel = numel, .at = 0.6}};
  for (const int64_t processes : {2, 4, 8}) {
    const auto step = forecast_step(cost, {.blocks = Placement::even(8, processes)});
    const int64_t contributed = (processes - 1) * (14 + 1) * 8;
    EXPECT_EQ(step.bytes_sent, 2 * (processes - 1) * numel * 4 / processes + contributed);
  }
}

// Two processes, a bucket that is complete at the end of the pass: what it takes is exposed. Another one that is
// complete early travels while the pass goes on.
TEST(AForecast, ExposesWhatComesTooLateToTravelBeside) {
  const LinkCost link{.bytes_per_second = 8 << 20};
  StepCost cost = even(1);
  cost.gradients = {{.numel = 1 << 20, .at = 0.6}};
  const double late = forecast_step(cost, {.blocks = Placement({1, 1})}, {}, link).communication;
  const double bytes = 2.0 * (1 << 20) * 4 / 2;  // of what crosses, in two messages of half the bucket
  EXPECT_NEAR(late, bytes / link.bytes_per_second, 1e-4);
  cost.gradients[0].at = 0;
  EXPECT_NEAR(forecast_step(cost, {.blocks = Placement({1, 1})}, {}, link).communication, 0, 1e-4);
}

TEST(AForecast, TakesEachReplicasOwnShare) {
  StepPlacement placement{.blocks = Placement({2}), .devices = 2};
  placement.share = [](int64_t, int64_t replica) { return replica == 0 ? 0.5 : 1.5; };
  const auto step = forecast_step(even(1), placement);
  EXPECT_NEAR(step.seconds, 1.5, kExact);
  EXPECT_NEAR(step.wait, 0.5, kExact);
}

TEST(AForecast, IsTheSameEachTimeFor1024Devices) {
  StepCost cost = even(16);
  for (int64_t g = 0; g < 160; ++g)
    cost.gradients.push_back({.numel = 160'000, .stage = 15 - g / 10, .at = 0.06 * static_cast<double>(g % 10)});
  const LinkCost link{.latency = 5e-6, .bytes_per_second = 12.5e9, .message = 1e-6};
  const auto first = forecast_step(cost, {.blocks = Placement::even(1024, 1024)}, {}, link);
  const auto hosts = forecast_step(cost, {.blocks = Placement::even(1024, 8), .devices = 128}, {}, link);
  EXPECT_EQ(first.seconds, forecast_step(cost, {.blocks = Placement::even(1024, 1024)}, {}, link).seconds);
  EXPECT_GT(first.seconds, 16);
  EXPECT_GT(hosts.seconds, 16);
}

TEST(AForecast, RefusesMorePartsThanStages) {
  EXPECT_THAT(test::error_of([] { forecast_step(even(2), {.devices = 3, .split = {.parts = 3}}); }),
              testing::HasSubstr("split p3 wants 3 parts, and the network has 2 stages"));
  StepCost cost = even(3);
  cost.gradients = {{.numel = 1, .stage = 2}, {.numel = 1, .stage = 0}};
  EXPECT_THAT(test::error_of([&] { forecast_step(cost, {.split = {.parts = 3}, .parts_are_processes = true}); }),
              testing::HasSubstr("split p3 wants 3 processes, and 2 of the network's stages may begin a part"));
}

}  // namespace
}  // namespace lockstep::parallel
