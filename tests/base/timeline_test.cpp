// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void pass_time() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// Two steps of forward, backward (with an exchange in it) and update (with a wait in it), and something after them.
Timeline two_steps() {
  Timeline timeline(true);
  timeline.begin_step(7);
  for (int step = 0; step < 2; ++step) {
    pass_time();
    timeline.enter(Phase::backward);
    pass_time();
    timeline.begin(Phase::exchange, nullptr, 3);
    pass_time();
    timeline.end();
    timeline.enter(Phase::update);
    timeline.begin(Phase::wait, "step");
    pass_time();
    timeline.end();
    timeline.end_step();
    timeline.begin_step(8 + step);
  }
  pass_time();
  timeline.close();
  return timeline;
}

TEST(Timeline, SharesTheTimeOfAStepOutAmongItsPhases) {
  const Timeline timeline = two_steps();
  const Timings& timings = timeline.timings();
  EXPECT_EQ(timings.steps, 2);
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::exchange, Phase::wait})
    EXPECT_GE(timings[phase], 0.004) << name_of(phase);
  double steps = 0;
  for (const TraceSpan& span : timeline.spans())
    if (std::string(span.name) == "step") steps += 1e-9 * static_cast<double>(span.end - span.begin);
  EXPECT_NEAR(timings.total(), steps, 1e-9);
}

TEST(Timeline, LeavesOutWhatCameAfterTheLastStep) {
  const Timeline timeline = two_steps();
  const TraceSpan last = timeline.spans().back();
  EXPECT_STREQ(last.name, "rest");
  EXPECT_EQ(timeline.timings().steps, 2);
}

TEST(Timeline, KeepsNoSpansWhereNoTraceIsWanted) {
  Timeline timeline;
  timeline.begin_step(0);
  timeline.end_step();
  EXPECT_TRUE(timeline.spans().empty());
  EXPECT_EQ(timeline.timings().steps, 1);
}

TEST(Timeline, SubtractsWhatWasBefore) {
  Timings before, after;
  before.seconds[0] = 1;
  after.seconds[0] = 3;
  before.steps = 2;
  after.steps = 5;
  EXPECT_EQ((after - before)[Phase::forward], 2);
  EXPECT_EQ((after - before).steps, 3);
  before += after;
  EXPECT_EQ(before.total(), 4);
}

class TraceFile : public ::testing::Test {
 protected:
  ~TraceFile() override {
    unsetenv("LOCKSTEP_TRACE");
    std::filesystem::remove_all(folder_);
  }
  TraceFile() { std::filesystem::create_directories(folder_); }
  std::string folder_ = text(std::filesystem::temp_directory_path().string(), "/lockstep_trace_", getpid());
};

TEST_F(TraceFile, IsWholeJsonAfterEachRun) {
  const std::string file = folder_ + "/run.json";
  const Timeline timeline = two_steps();
  size_t events = 0;
  for (int run = 0; run < 2; ++run) {
    write_trace(file, 3, std::vector<TraceThread>{{5, &timeline}, {6, &timeline}});
    std::ifstream in(file);
    const auto trace = nlohmann::json::parse(in);
    EXPECT_GT(trace["traceEvents"].size(), events);
    events = trace["traceEvents"].size();
    for (const auto& event : trace["traceEvents"]) {
      EXPECT_EQ(event["pid"], 3);
      if (event["ph"] != "X") continue;
      EXPECT_TRUE(event["tid"] == 5 || event["tid"] == 6);
      EXPECT_GE(event["dur"].get<double>(), 0);
      if (event["name"] == "exchange") {
        EXPECT_EQ(event["args"]["number"], 3);
      }
      if (event["name"] == "wait") {
        EXPECT_EQ(event["args"]["for"], "step");
      }
    }
  }
}

TEST_F(TraceFile, IsNamedByTheRankWhereThereAreSeveral) {
  EXPECT_EQ(trace_file(0, 1), "");
  setenv("LOCKSTEP_TRACE", "a/run.json", 1);
  EXPECT_EQ(trace_file(0, 1), "a/run.json");
  EXPECT_EQ(trace_file(3, 4), "a/run.rank3.json");
  setenv("LOCKSTEP_TRACE", "trace", 1);
  EXPECT_EQ(trace_file(1, 2), "trace.rank1.json");
}

TEST_F(TraceFile, SaysSoWhereItCannotBeWritten) {
  const Timeline timeline;
  EXPECT_THAT(
      [&] {
        write_trace(folder_ + "/none/run.json", 0, std::vector<TraceThread>{{0, &timeline}});
      },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("expected a file in a folder that exists")));
}

}  // namespace
}  // namespace lockstep
