// SPDX-License-Identifier: Apache-2.0
// Processes are played by threads with transports of their own; processes_test.cpp has real ones.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/collective_checks.h"
#include "comm/expect_failure.h"
#include "comm/gloo/gloo.h"
#include "comm/transport/transport_backend.h"
#include "comm/transport/wrapped.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"
#include "support/threads.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

#define SKIP_WITHOUT_GLOO() \
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)"

using Wrap = std::function<std::shared_ptr<Transport>(int process, std::shared_ptr<Transport>)>;

void run_ranks(const std::vector<int>& threads, const std::function<void(Group)>& body,
               milliseconds timeout = milliseconds(60000), const Wrap& wrap = {}) {
  at::set_num_threads(1);
  const int processes = static_cast<int>(threads.size());
  const auto store = c10::make_intrusive<c10d::HashStore>();
  lockstep::test::run_threads(processes, [&](int process) {
    auto transport = make_gloo_transport(store, process, processes, "127.0.0.1", timeout);
    if (wrap) transport = wrap(process, std::move(transport));
    const Group between(make_transport_backend(std::move(transport), timeout));
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

// As if a process's GPU refused, from a moment on.
class RefusesLater : public WrappedTransport {
 public:
  RefusesLater(std::shared_ptr<Transport> transport, const std::atomic<bool>& refuses)
      : WrappedTransport(std::move(transport)), refuses_(refuses) {}
  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    if (refuses_) throw std::runtime_error("CUDA error: out of memory");
    return WrappedTransport::start(sends, receives, channel);
  }

 private:
  const std::atomic<bool>& refuses_;
};

TEST(Hierarchical, AnErrorOfTheDeviceReachesEveryThreadOfEveryProcess) {
  SKIP_WITHOUT_GLOO();
  std::atomic<bool> refuses = false;
  std::barrier all(4);
  const auto begin = Clock::now();
  run_ranks(
      {2, 2},
      [&](const Group& group) {
        all.arrive_and_wait();
        refuses = true;
        auto work = group.all_reduce(at::ones({10}));
        if (group.rank() != 2) {
          EXPECT_THROW(work.wait(), CommError);
        } else {
          EXPECT_THAT([&] { work.wait(); }, testing::ThrowsMessage<std::runtime_error>("CUDA error: out of memory"));
        }
        all.arrive_and_wait();  // nobody is told by another who leaves
      },
      std::chrono::minutes(5),
      [&](int process, std::shared_ptr<Transport> transport) -> std::shared_ptr<Transport> {
        if (process == 0) return transport;
        return std::make_shared<RefusesLater>(std::move(transport), refuses);
      });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
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
