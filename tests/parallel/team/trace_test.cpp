// SPDX-License-Identifier: Apache-2.0
// The timeline of a run: its spans nest and cover the steps.
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using nlohmann::json;

constexpr int kSteps = 4;

void train(const TeamOptions& options) {
  const auto team = Team::create(options);
  team.run([&](Replica& me) {
    torch::nn::Sequential made(torch::nn::Linear(8, 16), torch::nn::BatchNorm1d(16), torch::nn::ReLU(),
                               torch::nn::Linear(16, 4));
    norm::convert_sync_batchnorm(*made);
    auto net = me.share(made);
    auto optimizer = me.optimizer(Sgd{.lr = 0.1});
    const Timings before = me.timings();
    EXPECT_EQ(before.steps, 0);
    for (int step = 0; step < kSteps; ++step) {
      at::Tensor x;
      {
        const PhaseScope reading(Phase::data);
        x = torch::ones({4, 8});
      }
      me.step(net->forward(x).square().mean(), optimizer);
    }
    const Timings timings = me.timings() - before;
    EXPECT_EQ(timings.steps, kSteps);
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::update, Phase::wait, Phase::data})
      EXPECT_GT(timings[phase], 0) << name_of(phase);
    if (options.group.size() == 1) {
      EXPECT_EQ(timings[Phase::exposed], 0);
    }
  });
  EXPECT_EQ(team.timings().size(), static_cast<size_t>(team.block().size()));
  for (const Timings& timings : team.timings()) EXPECT_EQ(timings.steps, kSteps);
}

struct Span {
  double begin, end;
  std::string name;
};
using Threads = std::map<int64_t, std::vector<Span>>;

// The rows of replicas, or those of devices.
Threads read(const std::string& file, int rank, bool devices = false) {
  std::ifstream in(file);
  const json trace = json::parse(in);
  Threads threads;
  for (const auto& event : trace["traceEvents"]) {
    EXPECT_EQ(event["pid"], rank);
    if (event["name"] == "process_name" || (event["tid"] >= kFirstTraceRow) != devices) continue;
    threads[event["tid"]];  // it has a name, and spans where it did anything
    if (event["ph"] == "X") {
      const double begin = event["ts"], length = event["dur"];
      threads[event["tid"]].push_back({begin, begin + length, event["name"]});
    }
  }
  return threads;
}

// Microseconds with three digits behind the point are exact to a nanosecond; sums of two are rounded.
constexpr double kRounding = 2e-3;

void expect_nested(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin < b.begin - kRounding || (a.begin < b.begin + kRounding && a.end > b.end + kRounding);
  });
  std::vector<Span> open;
  for (const Span& span : spans) {
    while (!open.empty() && open.back().end <= span.begin + kRounding) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(span.end, open.back().end + kRounding) << span.name << " in " << open.back().name;
    }
    open.push_back(span);
  }
}

// The phases of a step follow each other without a gap, in this order.
void expect_covered(const std::vector<Span>& spans) {
  int steps = 0;
  for (const Span& step : spans) {
    if (step.name != "step") continue;
    ++steps;
    double at = step.begin;
    for (const char* name : {"forward", "backward", "update"})
      for (const Span& span : spans)
        if (span.name == name && span.begin >= step.begin - kRounding && span.end <= step.end + kRounding &&
            span.begin <= at + kRounding && span.end >= at - kRounding)
          at = std::max(at, span.end);
    EXPECT_NEAR(at, step.end, kRounding);
  }
  EXPECT_EQ(steps, kSteps);
}

class Trace : public ::testing::Test {
 protected:
  Trace() {
    std::filesystem::create_directories(folder_);
    setenv("LOCKSTEP_TRACE", (folder_ + "/run.json").c_str(), 1);
  }
  ~Trace() override {
    unsetenv("LOCKSTEP_TRACE");
    std::filesystem::remove_all(folder_);
  }
  // A process begins a file once: each test has one of its own.
  std::string folder_ = text(std::filesystem::temp_directory_path().string(), "/lockstep_parallel_trace_", getpid(),
                             "_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(Trace, OfThreadsHasNestedSpansThatCoverEachStep) {
  train({.replicas = 3, .devices = "cpu:2"});
  const Threads threads = read(folder_ + "/run.json", 0);
  ASSERT_EQ(threads.size(), 3u);
  for (const auto& [replica, spans] : threads) {
    SCOPED_TRACE(replica);
    std::set<std::string> names;
    for (const Span& span : spans) names.insert(span.name);
    for (const char* name : {"step", "forward", "backward", "update", "wait", "data", "rest"})
      EXPECT_TRUE(names.contains(name)) << name;
    EXPECT_FALSE(names.contains("exposed"));
    expect_nested(spans);
    expect_covered(spans);
  }
}

// What a device does follows on what it did before, and replicas' own rows say the same.
void expect_rows_of_devices(const std::string& file, size_t devices) {
  const Threads rows = read(file, 0, true), replicas = read(file, 0);
  ASSERT_EQ(rows.size(), devices);
  double computed = 0, lasted = 0;
  for (const auto& [row, spans] : rows)
    for (size_t s = 0; s < spans.size(); ++s) {
      EXPECT_GE(spans[s].begin, s == 0 ? 0 : spans[s - 1].end - kRounding);
      if (spans[s].name == "backward") computed += spans[s].end - spans[s].begin;
    }
  for (const auto& [replica, spans] : replicas)
    for (const Span& span : spans)
      if (span.name == "backward") lasted += span.end - span.begin;
  EXPECT_GT(computed, 0);
  EXPECT_LE(computed, lasted + kRounding);
}

TEST_F(Trace, HasARowForEachDeviceWhoseGapsAreTheBubble) {
  train({.replicas = 3, .devices = "cpu:2"});
  expect_rows_of_devices(folder_ + "/run.json", 2);
}

TEST_F(Trace, HasARowForEachDeviceOfEachPart) {
  train({.replicas = 4, .devices = "cpu:3", .split = {.parts = 2}});
  expect_rows_of_devices(folder_ + "/run.json", 3);
}

TEST_F(Trace, OfProcessesIsOneFileEachAndShowsWhatWasSentAndWaitedFor) {
  const bool ran = lockstep::test::run_ranks(
      2, [&](const comm::Group& group) { train({.replicas = 3, .devices = "cpu:1", .group = group}); });
  if (!ran) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  for (int rank = 0; rank < 2; ++rank) {
    const Threads threads = read(text(folder_, "/run.rank", rank, ".json"), rank);
    EXPECT_EQ(threads.size(), rank == 0 ? 2u : 1u);
    std::set<std::string> names;
    for (const auto& [replica, spans] : threads) {
      for (const Span& span : spans) names.insert(span.name);
      expect_nested(spans);
      expect_covered(spans);
    }
    EXPECT_TRUE(names.contains("exchange"));
    EXPECT_TRUE(names.contains("exposed"));
  }
}

}  // namespace
}  // namespace lockstep::parallel
