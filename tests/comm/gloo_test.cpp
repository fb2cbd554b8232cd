// SPDX-License-Identifier: Apache-2.0
#include "comm/gloo/gloo.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/collective_checks.h"
#include "comm/transport/transport_backend.h"
#include "lockstep/comm/group.h"
#include "support/processes.h"
#include "support/threads.h"

namespace lockstep::comm {
namespace {

using lockstep::testing::Processes;
using std::chrono::milliseconds;
using testing::contribution;

#define SKIP_WITHOUT_GLOO() \
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)"

Group gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, milliseconds timeout,
                 const std::string& address = "127.0.0.1") {
  return Group(make_transport_backend(make_gloo_transport(store, rank, size, address, timeout), timeout));
}

// Ranks as threads of this process, each with sockets of its own.
void run_threads(int size, const std::function<void(const Group&)>& body, milliseconds timeout = milliseconds(30000)) {
  at::set_num_threads(1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  lockstep::testing::run_threads(size, [&](int rank) { body(gloo_group(store, rank, size, timeout)); });
}

// Ranks as processes; the store lives in this one, so that it survives them.
class Store {
 public:
  Store() {
    at::set_num_threads(1);
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    server_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
  c10::intrusive_ptr<c10d::Store> client() const {
    c10d::TCPStoreOptions options;
    options.port = server_->getPort();
    options.waitWorkers = false;
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> server_;
};

void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Waits for the work and checks that it fails within `seconds` and blames this rank.
void expect_failure(const std::function<void()>& body, int culprit, double seconds) {
  const auto start = Clock::now();
  try {
    body();
  } catch (const CommError& error) {
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    check(error.rank() == culprit, "expected to blame rank " + std::to_string(culprit) + ", got: " + error.what());
    check(took < seconds, "took " + std::to_string(took) + " s");
    return;
  }
  throw std::runtime_error("expected a CommError");
}

class GlooRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GlooRanks, ::testing::Values(1, 2, 3, 4, 7, 8));

TEST_P(GlooRanks, EveryCollectiveGivesWhatItsDefinitionSays) {
  SKIP_WITHOUT_GLOO();
  // The longest length where it is quick; piecewise transfers are the same for any number of ranks.
  const int64_t longest = GetParam() <= 3 ? 1 << 20 : 4096;
  run_threads(GetParam(), [&](const Group& group) { testing::check_everything(group, longest); });
}

TEST(Gloo, EveryCollectiveWorksBetweenProcesses) {
  SKIP_WITHOUT_GLOO();
  const Store store;
  Processes processes(3, [&](int rank) {
    const Group group = gloo_group(store.client(), rank, 3, milliseconds(30000));
    testing::check_everything(group, 4096);
    group.finish();
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), 0);
}

TEST(Gloo, AManyPieceSumIsCanonical) {
  SKIP_WITHOUT_GLOO();
  // 3 ranks own 1 MiB slices of a piece: 9,000,001 floats are twelve pieces and a ragged one.
  run_threads(3, [](const Group& group) {
    auto tensor = contribution(group.rank(), 9000001, at::kFloat);
    group.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(tensor, testing::tree_reference(ReduceOp::sum, 3, 9000001, at::kFloat)));
  });
}

TEST(Gloo, WorksOverIPv6) {
  SKIP_WITHOUT_GLOO();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  lockstep::testing::run_threads(2, [&](int rank) {
    testing::check_all_reduce(gloo_group(store, rank, 2, milliseconds(20000), "::1"), 1000, at::kFloat);
  });
}

TEST(Gloo, AKilledRankIsNamedByAllOthers) {
  SKIP_WITHOUT_GLOO();
  const Store store;
  Processes processes(4, [&](int rank) {
    const Group group = gloo_group(store.client(), rank, 4, milliseconds(20000));
    auto tensor = contribution(rank, 1 << 20, at::kFloat);
    group.all_reduce(tensor).wait();
    if (rank == 2) raise(SIGKILL);
    expect_failure([&] { group.all_reduce(tensor).wait(); }, 2, 10);
    expect_failure([&] { group.barrier().wait(); }, -1, 1);  // broken: at once
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(processes.wait(rank), rank == 2 ? 128 + SIGKILL : 0) << rank;
}

TEST(Gloo, AStoppedRankIsNamedWithinTheTimeout) {
  SKIP_WITHOUT_GLOO();
  const Store store;
  Processes processes(3, [&](int rank) {
    const Group group = gloo_group(store.client(), rank, 3, milliseconds(20000));
    auto tensor = contribution(rank, 100000, at::kFloat);
    group.all_reduce(tensor).wait();
    if (rank == 1) raise(SIGSTOP);
    expect_failure([&] { group.all_reduce(tensor, ReduceOp::sum, {.timeout = milliseconds(3000)}).wait(); }, 1, 3.5);
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(2), 0);
}

TEST(Gloo, ARankThatDoesNotComeIsNamedAndLearnsOfIt) {
  SKIP_WITHOUT_GLOO();
  run_threads(3, [](const Group& group) {
    if (group.rank() == 2) std::this_thread::sleep_for(milliseconds(3000));
    expect_failure([&] { group.barrier({.timeout = milliseconds(1500)}).wait(); }, 2, 3);
  });
}

TEST(Gloo, ARankThatLeavesClosesItsSocketsAndDoesNotBlock) {
  SKIP_WITHOUT_GLOO();
  run_threads(2, [](const Group& group) {
    if (group.rank() == 0) return;
    expect_failure([&] { group.all_reduce(at::ones({1 << 20})).wait(); }, 0, 5);
  });
}

TEST(Gloo, AnAbortEndsWhatIsUnderWay) {
  SKIP_WITHOUT_GLOO();
  run_threads(2, [](const Group& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(500));
      return;
    }
    auto work = group.recv(at::ones({10}), 1);
    std::thread aborter([&] {
      std::this_thread::sleep_for(milliseconds(100));
      group.abort("the user pressed Ctrl-C");
    });
    EXPECT_THROW(work.wait(), CommError);
    aborter.join();
  });
}

TEST(Gloo, InDebugModeDifferentCallsAreAnErrorThatNamesBoth) {
  SKIP_WITHOUT_GLOO();
  setenv("LOCKSTEP_DEBUG", "1", 1);
  run_threads(3, [](const Group& group) {
    testing::check_all_reduce(group, 100, at::kFloat);
    try {
      if (group.rank() == 1) group.broadcast(at::ones({4}), 0).wait();
      if (group.rank() != 1) group.all_reduce(at::ones({5})).wait();
      ADD_FAILURE() << "expected a CommError";
    } catch (const CommError& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("rank 0 called all_reduce(sum, Float[5])"),
                                                 ::testing::HasSubstr("rank 1 called broadcast(Float[4], root 0)")));
    }
  });
  unsetenv("LOCKSTEP_DEBUG");
}

}  // namespace
}  // namespace lockstep::comm
