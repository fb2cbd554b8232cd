// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "lockstep/base/detail/processor.h"
#include "lockstep/comm/connect.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lockstep::trials {
namespace {

using test::error_of;
using testing::HasSubstr;

constexpr double kExact = 1e-9;

run::Config tiny_network() {
  run::Config config;
  config.model = "mine";
  config.data = "synthetic:1x8x8:4:256";
  config.batch = 64;
  config.replicas = 8;
  return config;
}

/// Eight replicas of a tenth of a second each.
Profile plain_profile() {
  Profile profile{.cores = 4,
                  .model = "mine",
                  .data = "synthetic:1x8x8:4:256",
                  .batch = 64,
                  .replicas = 8,
                  .cost = {.stages = {{.name = "a", .forward = 0.02, .backward = 0.03},
                                      {.name = "b", .forward = 0.02, .backward = 0.03}},
                           .gradients = {{.numel = 1 << 20, .stage = 1, .at = 0.03}, {.numel = 1 << 20, .at = 0.03}}},
                  .seconds = 0.8,
                  .examples = 256};
  return profile;
}

ForecastOptions plain_options(std::vector<int64_t> devices) {
  return {.config = tiny_network(), .devices = std::move(devices), .hosts = "8x1", .link = "100gbit:0us:0us"};
}

TEST(Forecast, OfDevicesWithoutALinkToWaitForIsIdeal) {
  ForecastOptions options = plain_options({1, 2, 4, 8});
  options.hosts = "1x8";
  options.config.epochs = 10;
  const auto result = forecast(options, plain_profile());
  ASSERT_EQ(result.rows.size(), 4U);
  for (const ForecastRow& row : result.rows) {
    EXPECT_NEAR(row.speedup, static_cast<double>(row.devices), kExact);
    EXPECT_EQ(row.ideal, static_cast<double>(row.devices));
    EXPECT_EQ(row.processes, 1);
    EXPECT_FALSE(row.break_even);
    EXPECT_NEAR(row.training_seconds, 10 * 4 * row.step.seconds, kExact);
    EXPECT_LT(row.low, row.step.seconds);
    EXPECT_GT(row.high, row.step.seconds);
  }
  EXPECT_TRUE(result.rows[3].best);
  EXPECT_THAT(result.rows[3].notes, testing::ElementsAre(HasSubstr("more threads a host than the 4 cores")));
}

// What 8 MiB of gradients need is known: at the break-even rate two hosts are as fast as one device.
TEST(Forecast, FindsTheLinkFromWhichHostsPay) {
  const auto options = plain_options({1, 2});
  const auto row = forecast(options, plain_profile()).rows[1];
  ASSERT_TRUE(row.break_even);
  EXPECT_GT(*row.break_even, 1e6);
  ForecastOptions at = options;
  at.link = text(8e-3 * *row.break_even, "kbit:0us:0us");
  EXPECT_NEAR(forecast(at, plain_profile()).rows[1].step.seconds, 0.8, 1e-3);
  at.link = "10kbit:0us:0us";
  EXPECT_LT(forecast(at, plain_profile()).rows[1].speedup, 1);
  EXPECT_TRUE(forecast(at, plain_profile()).rows[0].best);
}

// The mean of the larger of two normal numbers is 0.56 standard deviations above their mean.
TEST(Forecast, WaitsForTheSlowestProcess) {
  Profile profile = plain_profile();
  const double calm = forecast(plain_options({1, 2}), profile).rows[1].step.seconds;
  profile.jitter = 0.1;
  const auto rows = forecast(plain_options({1, 2}), profile).rows;
  EXPECT_NEAR(rows[0].step.seconds, 0.8, kExact);
  EXPECT_NEAR(rows[1].step.seconds - calm, 0.056 * 0.4, 0.002 * 0.4 + 1e-3);
}

TEST(Forecast, ChoosesASplitWhereItIsToldTo) {
  ForecastOptions options = plain_options({2});
  options.hosts = "1x2";
  options.splits = {"data", "p2", "auto"};
  const auto rows = forecast(options, plain_profile()).rows;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_NEAR(rows[0].step.seconds, 0.4, kExact);
  EXPECT_NEAR(rows[1].step.seconds, 0.45, kExact);
  EXPECT_EQ(rows[2].split, "data");
  EXPECT_TRUE(rows[2].chosen);
}

// Two hosts with a device each are a part each; a network of clouds is not divided so.
TEST(Forecast, DividesTheNetworkOverProcessesOfTooFewThreads) {
  ForecastOptions options = plain_options({1, 2, 4});
  options.splits = {"data", "p2"};
  const auto rows = forecast(options, plain_profile()).rows;
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[2].split, "p2");
  EXPECT_NEAR(rows[2].step.seconds, 0.45, 1e-5);
  EXPECT_EQ(rows[2].step.gradient_bytes, 4 << 20);
  EXPECT_LT(rows[2].memory_mib, rows[1].memory_mib);
  EXPECT_LT(rows[4].step.seconds, 0.3);
  EXPECT_EQ(rows[4].processes, 4);
}

// Eight replicas add 10 MiB each, 8 of them gradients; a process keeps a row more for what it brings to the sums.
TEST(Forecast, CountsTheMemoryOfTheReplicasOfAProcess) {
  Profile profile = plain_profile();
  profile.peak_mib = 180;
  profile.replica_mib = 10;
  for (auto& stage : profile.cost.stages) stage.kept_bytes = 1 << 20;
  ForecastOptions options = plain_options({1, 2});
  options.splits = {"data", "p2"};
  const auto rows = forecast(options, profile).rows;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_NEAR(rows[0].memory_mib, 180, kExact);
  EXPECT_NEAR(rows[1].memory_mib, 180 - 4 * 10 + 8, kExact);
  // The first part has all replicas, half of the gradients, and two halves in flight in place of one whole.
  EXPECT_NEAR(rows[2].memory_mib, 180 - 8 * 5, kExact);
}

TEST(Forecast, LetsTheBatchGrow) {
  ForecastOptions options = plain_options({1, 1024});
  options.hosts = "1024x1";
  options.config.scale_batch = true;
  const auto rows = forecast(options, plain_profile()).rows;
  EXPECT_EQ(rows[1].replicas, 8 * 1024);
  EXPECT_EQ(rows[1].batch, 64 * 1024);
  EXPECT_GT(rows[1].speedup, 500);
  EXPECT_LE(rows[1].speedup, 1024 + kExact);
}

TEST(Forecast, NamesWhatMakesNoSense) {
  const auto error = [](const auto& change) {
    ForecastOptions options = plain_options({1, 2});
    change(options);
    return error_of([&] { forecast(options, plain_profile()); });
  };
  EXPECT_THAT(error([](auto& o) { o.devices = {0}; }), HasSubstr("--devices has 0"));
  EXPECT_THAT(error([](auto& o) { o.hosts = "8"; }),
              HasSubstr("--hosts is '8', expected hosts and the devices of each"));
  EXPECT_THAT(error([](auto& o) { o.devices = {16}; }), HasSubstr("expected no more"));
  EXPECT_THAT(error([](auto& o) { o.link = "fast"; }), HasSubstr("--link is 'fast', expected measure, or a rate"));
  EXPECT_THAT(error([](auto& o) { o.link = "0gbit:1us"; }), HasSubstr("--link is '0gbit:1us'"));
  EXPECT_THAT(error([](auto& o) { o.splits = {"q2"}; }), HasSubstr("got 'q2'"));
  EXPECT_THAT(error([](auto& o) { o.splits = {"t2"}; }), HasSubstr("split t2 shares 1 slices"));
  EXPECT_THAT(error([](auto& o) { o.config.model = "lenet"; }), HasSubstr("the profile is of mine"));
  EXPECT_THAT(error([](auto& o) { o.config.batch = 32; }), HasSubstr("shares of another size take other times"));
}

TEST(Calibrate, MakesThePassesAsLongAsTheyWere) {
  Profile profile = plain_profile();
  profile.cores = 2;
  const run::Phases one{.data = 0.08, .forward = 0.8, .backward = 1.6, .update = 0.12, .wait = 0.02};
  const run::Phases apart{.data = 0.08, .forward = 1.0, .backward = 2.0, .update = 0.18, .wait = 0.02};
  calibrate(profile, {.one = one, .apart = apart}, 0);
  EXPECT_NEAR(profile.cost.stages[0].forward, 0.05, kExact);
  EXPECT_NEAR(profile.cost.stages[1].backward, 0.1, kExact);
  EXPECT_NEAR(profile.cost.sum_row * 8 + profile.cost.update, 0.12, kExact);
  EXPECT_NEAR(profile.slowdown.passes[1], 1.25, kExact);
  EXPECT_NEAR(profile.slowdown.memory[1], 1.5, kExact);
  const auto step = parallel::forecast_step(profile.cost, {.blocks = Placement({8})});
  EXPECT_NEAR(step.seconds, one.sum(), kExact);
}

// 0.45 s a replica on each of two threads, 1.5 times what it takes alone; 0.08 s of four turns are left, slowed alike.
TEST(Calibrate, SaysWhatThreadsOfAProcessLose) {
  Profile profile = plain_profile();
  profile.cores = 2;
  const run::Phases one{.forward = 0.8, .backward = 1.6, .update = 0.12};
  const run::Phases threads{.forward = 0.6, .backward = 1.2, .update = 0.06, .wait = 0.08};
  calibrate(profile, {.one = one, .threads = threads}, 0);
  EXPECT_EQ(profile.slowdown.passes.size(), 1U);
  EXPECT_NEAR(profile.slowdown.thread_passes[1], 1.5, kExact);
  EXPECT_NEAR(profile.slowdown.thread_memory[1], 1, kExact);
  EXPECT_NEAR(profile.slowdown.thread_turn[1], 0.02 / 1.5, kExact);
  const auto step = parallel::forecast_step(profile.cost, {.blocks = Placement({8}), .devices = 2}, profile.slowdown);
  EXPECT_NEAR(step.seconds, threads.sum(), kExact);
}

TEST(Profile, IsTheSameFromItsFile) {
  const test::TemporaryFolder folder;
  Profile profile = plain_profile();
  profile.loopback = parallel::LinkCost{.latency = 1e-5, .bytes_per_second = 1e9, .message = 2e-6};
  profile.slowdown = {{1, 1.1}, {1, 1.5}, {1, 1.2}, {1, 1.6}, {0, 1e-3}};
  write_profile(profile, folder.file("profile.json"));
  const Profile read = read_profile(folder.file("profile.json"));
  EXPECT_EQ(read.cost.stages[1].backward, 0.03);
  EXPECT_EQ(read.cost.gradients[1].numel, 1 << 20);
  EXPECT_EQ(read.slowdown.memory[1], 1.5);
  EXPECT_EQ(read.slowdown.thread_memory[1], 1.6);
  EXPECT_EQ(read.slowdown.thread_turn[1], 1e-3);
  EXPECT_EQ(read.loopback->message, 2e-6);
  const auto options = plain_options({1, 8});
  EXPECT_EQ(forecast(options, read).rows[1].step.seconds, forecast(options, profile).rows[1].step.seconds);
  EXPECT_THAT(error_of([&] { read_profile(folder.file("no.json")); }), HasSubstr("no.json"));
}

TEST(Profile, OfShortStepsHasManyOfThem) {
  ProfileOptions options{.config = tiny_network(), .rounds = 1, .slows = false};
  const Profile profile = measure_profile(options);
  EXPECT_GE(profile.steps, 12);
  EXPECT_LE(profile.steps, 300);
  const test::TemporaryFolder folder;
  write_profile(profile, folder.file("profile.json"));
  EXPECT_EQ(read_profile(folder.file("profile.json")).steps, profile.steps);
  options.steps = 8;
  EXPECT_EQ(measure_profile(options).steps, 8);
}

// Real trainings of a tiny network: what is forecast and measured is there, whatever this machine is doing.
TEST(Forecast, IsCheckedWhereThisMachineCan) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  ForecastOptions options{.config = tiny_network(), .devices = {1, 2}, .hosts = "2x1", .rounds = 1, .profile_steps = 8};
  options = with_defaults(options);
  auto result = forecast(options, measure_profile(profile_options(options)));
  EXPECT_TRUE(result.profile.loopback);
  EXPECT_GT(result.link.bytes_per_second, 1e6);
  EXPECT_NEAR(result.rows[0].step.seconds, result.profile.seconds, 1e-3 * result.profile.seconds);
  EXPECT_GT(result.rows[1].step.bytes_sent, 0);
  check(result, options);
  EXPECT_TRUE(result.rows[0].measured);
  EXPECT_EQ(result.rows[1].measured.has_value(), cpu_info().cores >= 2);
}

TEST(Verdict, SaysByHowMuchItWasOff) {
  EXPECT_EQ(verdict(0.0512, 0.0499, 0.0528, 0.052), "forecast 51.2 ms [49.9, 52.8], was 52.0, +1.6 %");
  EXPECT_EQ(verdict(0.1, 0.09, 0.11, 0.09), "forecast 100.0 ms [90.0, 110.0], was 90.0, -10.0 %");
}

}  // namespace
}  // namespace lockstep::trials
