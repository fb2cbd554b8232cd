// SPDX-License-Identifier: Apache-2.0
// Ghost batch norms' running statistics where they wait for the end of a step.
#include "lockstep/norm/detail/after_step.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "lockstep/norm/sync_batch_norm.h"
#include "support/thread_peers.h"

namespace lockstep::norm {
namespace {

/// Counts what this replica waits for.
class CountingPeers : public test::ThreadPeers {
 public:
  using ThreadPeers::ThreadPeers;
  at::Tensor all_gather(const at::Tensor& mine) override {
    ++gathers;
    return ThreadPeers::all_gather(mine);
  }
  int gathers = 0;
};

struct Seen {
  std::vector<at::Tensor> statistics;  // of each layer
  int in_pass = 0, after = 0;          // exchanges
};

/// A step over three layers of different widths, one of them used twice; replica r has 5 - 2 r rows.
Seen step_over_layers(bool deferred) {
  constexpr int64_t kReplicas = 3;
  std::vector<Seen> outcomes(kReplicas);
  test::ThreadPeers::Table table(kReplicas);
  std::vector<at::Tensor> inputs;
  at::manual_seed(1);
  for (const int64_t channels : {4, 7, 1}) inputs.push_back(at::randn({9, channels}, at::kDouble));
  std::vector<std::jthread> threads;
  for (int64_t r = 0; r < kReplicas; ++r)
    threads.emplace_back([&, r] {
      CountingPeers peers(table, r);
      AfterStep after_step;
      const ContextScope scope({.peers = &peers, .after_step = deferred ? &after_step : nullptr});
      Seen& mine = outcomes[r];
      for (const at::Tensor& x : inputs)
        for (int part = 0; part < 2; ++part)
          mine.statistics.push_back(part == 0 ? at::zeros({x.size(1)}) : at::ones({x.size(1)}));
      for (const size_t layer : {0, 1, 2, 1}) {
        const at::Tensor share = inputs[layer].narrow(0, r * (6 - r), 5 - 2 * r);
        sync_batch_norm(share, {}, {}, mine.statistics[2 * layer], mine.statistics[2 * layer + 1], 0.1, 1e-5,
                        BatchNormMode::ghost, &peers);
      }
      mine.in_pass = peers.gathers;
      after_step.run(peers);
      mine.after = peers.gathers - mine.in_pass;
    });
  threads.clear();
  for (const Seen& outcome : outcomes)
    for (size_t i = 0; i < outcome.statistics.size(); ++i)
      EXPECT_TRUE(at::equal(outcome.statistics[i], outcomes[0].statistics[i])) << "the same on all replicas";
  return outcomes[0];
}

TEST(AfterStep, AllLayersCrossInOneExchangeAndNoneInTheForwardPass) {
  const Seen at_once = step_over_layers(false), deferred = step_over_layers(true);
  EXPECT_EQ(at_once.in_pass, 4);
  EXPECT_EQ(deferred.in_pass, 0);
  EXPECT_EQ(deferred.after, 1);
}

TEST(AfterStep, ChangesNoBitOfTheStatistics) {
  const Seen at_once = step_over_layers(false), deferred = step_over_layers(true);
  for (size_t i = 0; i < at_once.statistics.size(); ++i)
    EXPECT_TRUE(at::equal(at_once.statistics[i], deferred.statistics[i])) << i;
}

TEST(AfterStep, WithoutGhostsNothingCrosses) {
  test::ThreadPeers::Table table(1);
  CountingPeers peers(table, 0);
  AfterStep().run(peers);
  EXPECT_EQ(peers.gathers, 0);
}

}  // namespace
}  // namespace lockstep::norm
