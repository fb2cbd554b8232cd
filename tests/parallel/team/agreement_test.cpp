// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using testing::HasSubstr;

// What a team of two processes says on both, where body(group) is what each does.
void expect_both_say(const std::string& text, const std::function<void(const comm::Group&)>& body) {
  std::vector<std::string> said(2);
  const bool ran = lockstep::test::run_ranks(2, [&](const comm::Group& group) {
    try {
      body(group);
    } catch (const std::exception& error) {
      said[group.rank()] = error.what();
    }
  });
  if (!ran) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  for (const std::string& one : said) EXPECT_THAT(one, HasSubstr(text));
}

TEST(Agreement, ProcessesAreToldAlike) {
  expect_both_say("Team: process 1 has 'seed 4' where process 0 has 'seed 3'", [](const comm::Group& group) {
    Team::create({.replicas = 2, .devices = "cpu:1", .group = group, .seed = 3 + uint64_t(group.rank())});
  });
  const auto in_a_run = [](const std::function<void(Replica&)>& body) {
    return [body](const comm::Group& group) {
      Team::create({.replicas = 2, .devices = "cpu:1", .group = group}).run(body);
    };
  };
  expect_both_say(
      "share: process 1 has 'parameter weight: Float[2, 4]' where process 0 has 'parameter weight: "
      "Float[2, 3]', expected",
      in_a_run([](Replica& me) { me.share(torch::nn::Linear(3 + me.number(), 2)); }));
  expect_both_say(
      "process 1 has 'memory format Contiguous' where process 0 has 'buffer running_mean: Float[4]'",
      in_a_run([](Replica& me) {
        me.share(torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(4).track_running_stats(me.number() == 0)));
      }));
  for (const auto& [options, text] : std::vector<std::pair<OptimizerOptions, std::string>>{
           {{.clip_norm = 1e-9}, "process 1 has 'clip_norm 1e-09' where process 0 has 'clip_norm 0'"},
           {{.wire = TopK{.start = 5}}, "process 1 has 'wire top_k:0.01 from step 5' where process 0 has 'wire none"},
           {{.divide_state = true}, "process 1 has 'divide_state' where process 0 has 'no divide_state'"}})
    expect_both_say(text, in_a_run([&options = options](Replica& me) {
                      auto network = me.share(torch::nn::Linear(3, 2));
                      me.optimizer(Sgd{}, me.number() == 1 ? options : OptimizerOptions{});
                    }));
  expect_both_say("process 1 has 'group 0: sgd with momentum_buffer' where process 0 has 'group 0: sgd'",
                  in_a_run([](Replica& me) {
                    auto network = me.share(torch::nn::Linear(3, 2));
                    me.optimizer(Sgd{.momentum = 0.5 * double(me.number())});
                  }));
  expect_both_say("process 1 has 'sum left' where process 0 has 'sum right'", in_a_run([](Replica& me) {
                    auto network = me.share(torch::nn::Linear(3, 2));
                    auto optimizer = me.optimizer(Sgd{});
                    me.step_sum(optimizer, me.number() == 0 ? "right" : "left");
                  }));
}

}  // namespace
}  // namespace lockstep::parallel
