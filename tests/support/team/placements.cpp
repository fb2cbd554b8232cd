// SPDX-License-Identifier: Apache-2.0
#include "support/team/placements.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "support/threads.h"

namespace lockstep::test {

bool joins_ranks() {
  return std::ranges::count(comm::backends(), "gloo") > 0;
}

std::string new_job() {
  static std::atomic<int> jobs = 0;
  return text("test-", getpid(), "-", jobs++);
}

comm::Group join(const std::string& job, int rank, int count) {
  if (count == 1) return {};
  comm::Environment place;
  place.launcher = "a test";
  place.rank = place.local_rank = rank;
  place.size = place.local_size = count;
  place.store_host = "127.0.0.1";
  place.job = job;
  comm::ConnectOptions options;
  options.backend = "gloo";
  options.timeout = std::chrono::seconds(60);
  return comm::connect(place, options);
}

bool run_ranks(int count, const std::function<void(const comm::Group&)>& body) {
  if (count > 1 && !joins_ranks()) return false;
  const std::string job = new_job();
  run_threads(count, [&](int rank) { body(join(job, rank, count)); });
  return true;
}

std::ostream& operator<<(std::ostream& out, const Placed& placed) {
  return out << placed.ranks << " x " << placed.devices;
}

std::vector<Placed> placements() {
  std::vector<Placed> all{{1, "cpu:2"}, {1, "cpu:1"}, {1, "cpu:8"}};
  if (joins_ranks()) all.insert(all.end(), {{2, "cpu:2"}, {3, "cpu:1", {3, 3, 2}}});
  return all;
}

State run_placed(const Placed& placed, const parallel::TeamOptions& recipe,
                 const std::function<State(parallel::Replica&)>& body) {
  State out;
  std::mutex mutex;
  const bool ran = run_ranks(placed.ranks, [&](const comm::Group& group) {
    parallel::TeamOptions options = recipe;
    options.group = group;
    options.devices = placed.devices;
    options.blocks = placed.blocks;
    parallel::Team::create(options).run([&](parallel::Replica& me) {
      State mine = body(me);
      const std::lock_guard lock(mutex);
      if (me.number() == 0) out = std::move(mine);
    });
  });
  EXPECT_TRUE(ran) << "this build cannot join " << placed.ranks << " ranks";
  return out;
}

State state_of(parallel::Replica& me, const torch::nn::Module& network, const parallel::Optimizer& optimizer) {
  State state;
  for (const auto& [name, tensor] : me.state_dict(optimizer)) state["optimizer." + name] = tensor.clone();
  const auto buffers = network.named_buffers();
  for (const auto& [name, tensor] : me.state_dict(network))
    state[(buffers.contains(name) ? "buffer." : "weight.") + name] = tensor.clone();
  return state;
}

void expect_equal(const State& a, const State& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

State expect_same_everywhere(const parallel::TeamOptions& recipe,
                             const std::function<State(parallel::Replica&)>& body) {
  State first;
  for (const Placed& placed : placements()) {
    SCOPED_TRACE(placed);
    const State state = run_placed(placed, recipe, body);
    EXPECT_FALSE(state.empty());
    if (first.empty())
      first = state;
    else
      expect_equal(state, first);
  }
  return first;
}

}  // namespace lockstep::test
