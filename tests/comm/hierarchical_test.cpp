// SPDX-License-Identifier: Apache-2.0
// Processes are played by threads with transports of their own; processes_test.cpp has real ones.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <latch>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/collective_checks.h"
#include "comm/expect_failure.h"
#include "comm/gloo/gloo.h"
#include "comm/transport/transport_backend.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"
#include "support/threads.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

#define SKIP_WITHOUT_GLOO() \
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)"

void run_ranks(const std::vector<int>& threads, const std::function<void(Group)>& body,
               milliseconds timeout = milliseconds(60000)) {
  at::set_num_threads(1);
  const int processes = static_cast<int>(threads.size());
  const auto store = c10::make_intrusive<c10d::HashStore>();
  lockstep::test::run_threads(processes, [&](int process) {
    const Group between(
        make_transport_backend(make_gloo_transport(store, process, processes, "127.0.0.1", timeout), timeout));
    auto members = local_groups(threads[process], timeout);
    lockstep::test::run_threads(threads[process], [&](int thread) {
      const Group within = std::exchange(members[thread], Group());
      body(hierarchical_group(within, between));
    });
  });
}

class Placements : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Threads, Placements,
                         ::testing::Values(std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 3},
                                           std::vector{3, 3, 2}, std::vector{4, 4}));

TEST_P(Placements, EveryCollectiveGivesWhatItsDefinitionSays) {
  SKIP_WITHOUT_GLOO();
  run_ranks(GetParam(), [](const Group& group) {
    for (auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kBool})
      for (int64_t length : {0, 1, 15, 4096}) {
        test::check_all_reduce(group, length, dtype);
        test::check_ring(group, length, dtype);
        test::check_reduce_scatter(group, length, dtype);
        test::check_gathers(group, length, dtype);
        test::check_broadcast(group, length, dtype);
        test::check_scatter(group, length, dtype);
        test::check_all_to_all(group, length, dtype);
        test::check_messages(group, length, dtype);
      }
    test::check_coalesced(group, at::kFloat);
    test::check_bytes(group);
    test::check_non_contiguous(group);
    test::check_inference_mode(group);
    test::check_asynchronous(group);
    test::check_split(group);
  });
}

TEST_P(Placements, ASumOfSeveralPiecesIsCanonical) {
  SKIP_WITHOUT_GLOO();
  run_ranks(GetParam(), [](const Group& group) { test::check_all_reduce(group, 2500001, at::kFloat); });
}

TEST(Hierarchical, AFailureBetweenProcessesReachesEveryThread) {
  SKIP_WITHOUT_GLOO();
  run_ranks(
      {2, 2},
      [](const Group& group) {
        test::check_all_reduce(group, 100, at::kFloat);
        if (group.rank() >= 2) return;  // the second process leaves
        EXPECT_THROW(group.all_reduce(at::ones({10})).wait(), CommError);
      },
      milliseconds(10000));
}

TEST(Hierarchical, WhoeverLeavesAnOperationBehindWaitsForNobody) {
  SKIP_WITHOUT_GLOO();
  std::latch left(2);
  run_ranks(
      {2, 2},
      [&](Group group) {
        if (group.rank() < 2) {
          std::ignore = group.all_reduce(at::ones({10}));
          group = Group();
          left.count_down();
          return;
        }
        left.wait();
        EXPECT_THROW(group.all_reduce(at::ones({10})).wait(), CommError);
      },
      std::chrono::hours(1));
}

TEST(Hierarchical, OneProcessIsTheGroupOfItsThreads) {
  EXPECT_EQ(hierarchical_group(Group(), Group()).backend(), "local");
}

}  // namespace
}  // namespace lockstep::comm
