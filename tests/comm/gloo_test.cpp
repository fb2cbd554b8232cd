// SPDX-License-Identifier: Apache-2.0
#include "comm/gloo/gloo.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/collective_checks.h"
#include "comm/expect_failure.h"
#include "comm/meeting/rendezvous.h"
#include "comm/transport/staging.h"
#include "comm/transport/transport_backend.h"
#include "lockstep/comm/group.h"
#include "support/threads.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using test::contribution;
using test::expect_failure;

#define SKIP_WITHOUT_GLOO() \
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)"

constexpr milliseconds kLong{600000};  // nobody waits so long

Group gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, milliseconds timeout,
                 const std::string& address = "127.0.0.1") {
  return Group(make_transport_backend(make_gloo_transport(store, rank, size, address, timeout), timeout));
}

// Ranks as threads of this process, each with sockets of its own.
void run_threads(int size, const std::function<void(const Group&)>& body, milliseconds timeout = milliseconds(30000)) {
  at::set_num_threads(1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  lockstep::test::run_threads(size, [&](int rank) { body(gloo_group(store, rank, size, timeout)); });
}

class GlooRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GlooRanks, ::testing::Values(1, 2, 3, 4, 7, 8));

TEST_P(GlooRanks, EveryCollectiveGivesWhatItsDefinitionSays) {
  SKIP_WITHOUT_GLOO();
  // The longest length where it is quick; piecewise transfers are the same for any number of ranks.
  const int64_t longest = GetParam() <= 3 ? 1 << 20 : GetParam() == 4 ? 4096 : 15;
  run_threads(GetParam(), [&](const Group& group) { test::check_everything(group, longest); });
}

TEST(Gloo, AManyPieceSumIsCanonical) {
  SKIP_WITHOUT_GLOO();
  // 3 ranks own 1 MiB slices of a piece: 9,000,001 floats are twelve pieces and a ragged one.
  run_threads(3, [](const Group& group) {
    auto tensor = contribution(group.rank(), 9000001, at::kFloat);
    group.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(tensor, test::tree_reference(ReduceOp::sum, 3, 9000001, at::kFloat)));
  });
}

TEST(Gloo, ItsThreadsPushNobodyOffACore) {
  SKIP_WITHOUT_GLOO();
  const int mine = sched_getscheduler(0);
  run_threads(1, [mine](const Group&) {
    int patient = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
      patient += sched_getscheduler(std::stoi(thread.path().filename())) == SCHED_BATCH ? 1 : 0;
    EXPECT_TRUE(patient > 0 || mine != SCHED_OTHER);
    EXPECT_EQ(sched_getscheduler(0), mine);
  });
}

// Sixteen ranks meet by halves; of 3 and 2,000 floats they exchange all.
TEST(Gloo, SumsOfManyRanksAreCanonical) {
  SKIP_WITHOUT_GLOO();
  run_threads(16, [](const Group& group) {
    for (const int64_t length : {3, 2000, 2049, 100003})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max}) {
        auto tensor = contribution(group.rank(), length, at::kFloat);
        group.all_reduce(tensor, op).wait();
        EXPECT_TRUE(at::equal(tensor, test::tree_reference(op, 16, length, at::kFloat))) << length;
      }
  });
}

// As if all tensors lay where the transport does not reach.
class AllStaged : public StagingTransport {
  using StagingTransport::StagingTransport;
  bool reaches(const at::Tensor&) const override { return false; }
};

TEST(Gloo, CarriesWhatLiesElsewhereAsCopies) {
  SKIP_WITHOUT_GLOO();
  const milliseconds timeout(30000);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  lockstep::test::run_threads(3, [&](int rank) {
    const auto staged = std::make_shared<AllStaged>(make_gloo_transport(store, rank, 3, "127.0.0.1", timeout));
    test::check_everything(Group(make_transport_backend(staged, timeout)), 4096);
  });
}

// As if messages were ordered by a GPU's streams: who has ordered them still has to wait for them.
class Ordered : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    ++rounds;
    return std::make_unique<Round>(*this, WrappedTransport::start(sends, receives, channel));
  }
  int rounds = 0, ordered = 0, waited = 0;

 private:
  class Round : public Pending {
   public:
    Round(Ordered& counts, std::unique_ptr<Pending> pending) : counts_(counts), pending_(std::move(pending)) {}
    void wait(Clock::time_point deadline) override {
      ++counts_.waited;
      if (pending_) std::exchange(pending_, nullptr)->wait(deadline);
    }
    bool order(Clock::time_point deadline) override {
      ++counts_.ordered;
      std::exchange(pending_, nullptr)->wait(deadline);
      return false;
    }

   private:
    Ordered& counts_;
    std::unique_ptr<Pending> pending_;
  };
};

TEST(Gloo, WhatIsOrderedByStreamsIsWaitedForAtTheEnd) {
  SKIP_WITHOUT_GLOO();
  const milliseconds timeout(30000);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  lockstep::test::run_threads(4, [&](int rank) {
    const auto ordered = std::make_shared<Ordered>(make_gloo_transport(store, rank, 4, "127.0.0.1", timeout));
    test::check_everything(Group(make_transport_backend(ordered, timeout)), 4096);
    EXPECT_GT(ordered->ordered, 0);
    EXPECT_EQ(ordered->waited, ordered->rounds);
  });
}

// As if this rank's GPU refused to copy.
class Refusing : public StagingTransport {
  using StagingTransport::StagingTransport;
  std::unique_ptr<Pending> start(std::span<const Message>, std::span<const Message>, uint32_t) override {
    throw std::runtime_error("CUDA error: out of memory");
  }
};

TEST(Gloo, AnErrorOfTheDeviceComesOutAsItIsAndThePeersDoNotWaitForIt) {
  SKIP_WITHOUT_GLOO();
  const milliseconds timeout(30000);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto begin = Clock::now();
  lockstep::test::run_threads(2, [&](int rank) {
    std::shared_ptr<Transport> transport = make_gloo_transport(store, rank, 2, "127.0.0.1", timeout);
    if (rank == 1) transport = std::make_shared<Refusing>(transport);
    const Group group(make_transport_backend(transport, timeout));
    auto work = group.all_reduce(at::ones({1000}));
    if (rank == 0) return expect_failure([&] { work.wait(); }, 1, 10);
    try {
      work.wait();
      ADD_FAILURE() << "expected the device's error";
    } catch (const CommError& error) {
      ADD_FAILURE() << "expected the device's error, got " << error.what();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "CUDA error: out of memory");
    }
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST(Gloo, WorksOverIPv6) {
  SKIP_WITHOUT_GLOO();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  lockstep::test::run_threads(2, [&](int rank) {
    test::check_all_reduce(gloo_group(store, rank, 2, milliseconds(20000), "::1"), 1000, at::kFloat);
  });
}

TEST(Gloo, TwoThreadsOfARankCanSplitAtTheSameTimeInAnyOrder) {
  SKIP_WITHOUT_GLOO();
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto served = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  options.port = served->getPort();
  options.isServer = false;
  lockstep::test::run_threads(2, [&](int rank) {
    const auto store = shared_store(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
    constexpr milliseconds timeout{20000};
    const auto backend = make_transport_backend(make_gloo_transport(store, rank, 2, "127.0.0.1", timeout), timeout);
    lockstep::test::run_threads(2, [&](int number) {
      // Each rank waits in another split first.
      if (number != rank) std::this_thread::sleep_for(milliseconds(300));
      test::check_all_reduce(Group(backend->subgroup({0, 1}, number)), 10, at::kFloat);
    });
  });
}

class StoreOfOneConnection : public c10d::PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  c10::intrusive_ptr<c10d::Store> clone() override { throw std::runtime_error("a second connection"); }
};

TEST(Gloo, ARankAndItsSplitsShareOneConnectionToTheStore) {
  SKIP_WITHOUT_GLOO();
  const auto served = c10::make_intrusive<c10d::HashStore>();
  lockstep::test::run_threads(2, [&](int rank) {
    const auto store = shared_store(c10::make_intrusive<StoreOfOneConnection>("one", served));
    const Group group = gloo_group(store->clone(), rank, 2, milliseconds(20000));
    test::check_all_reduce(group.split(0, rank), 10, at::kFloat);
    test::check_all_reduce(group.split(0, rank).split(0, rank), 10, at::kFloat);
  });
}

TEST(Gloo, ARankThatDoesNotComeIsNamedAndLearnsOfIt) {
  SKIP_WITHOUT_GLOO();
  run_threads(3, [](const Group& group) {
    if (group.rank() == 2) std::this_thread::sleep_for(milliseconds(3000));
    expect_failure([&] { group.barrier({.timeout = milliseconds(1500)}).wait(); }, 2, 6);
  });
}

TEST(Gloo, WhoIsToldThatOthersWontComeWaitsNoLonger) {
  SKIP_WITHOUT_GLOO();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<bool> given_up = false;
  std::atomic<int> left = 2;
  lockstep::test::run_threads(3, [&](int rank) {
    const auto mine = shared_store(store, [&] { return given_up.load(); });
    const auto backend = make_transport_backend(make_gloo_transport(mine, rank, 3, "127.0.0.1", kLong), kLong);
    const Group group(backend);
    group.barrier().wait();
    if (rank < 2) {
      try {
        backend->subgroup({0, 1, 2}, 0);
        ADD_FAILURE() << "rank 2 can't have come";
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("the others won't come"));
      }
      --left;
    }
    given_up = true;
    while (left > 0) std::this_thread::sleep_for(milliseconds(1));
  });
}

// The thread of a rank that is lost as soon as the others can read where it listens.
struct Lost {};

class StoreOfALostRank : public c10d::PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    PrefixStore::set(key, value);
    if (key.find("gloo") != std::string::npos) throw Lost{};
  }
};

TEST(Gloo, ARankLostWhileAllConnectHoldsTheOthersUpForAPartOfTheTimeOut) {
  SKIP_WITHOUT_GLOO();
  constexpr milliseconds timeout{9000};
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<bool> given_up = false;
  lockstep::test::run_threads(3, [&](int rank) {
    if (rank == 2) {
      const auto mine = c10::make_intrusive<StoreOfALostRank>("all", store);
      EXPECT_THROW(make_gloo_transport(mine, rank, 3, "127.0.0.1", timeout), Lost);
      given_up = true;
      return;
    }
    const auto begin = Clock::now();
    const auto all = c10::make_intrusive<c10d::PrefixStore>("all", store);
    const auto mine = shared_store(all, [&] { return given_up.load(); });
    EXPECT_THROW(make_gloo_transport(mine, rank, 3, "127.0.0.1", timeout), TransportFailure);
    EXPECT_LT(Clock::now() - begin, timeout * 2 / 3);
  });
}

TEST(Gloo, ARankThatLeavesClosesItsSocketsAndDoesNotBlock) {
  SKIP_WITHOUT_GLOO();
  run_threads(2, [](const Group& group) {
    if (group.rank() == 0) return;
    expect_failure([&] { group.all_reduce(at::ones({1 << 20})).wait(); }, 0, 5);
  });
}

// Gloo writes into sockets that a dead peer has closed: by default that signal would end this process.
TEST(Gloo, ABrokenPipeEndsNoProcessAndWhatTheProgramDoesWithTheSignalStays) {
  SKIP_WITHOUT_GLOO();
  const auto before = signal(SIGPIPE, SIG_DFL);
  run_threads(2, [](const Group& group) {
    if (group.rank() == 0) return;
    expect_failure([&] { group.send(at::ones({1 << 20}), 0).wait(); }, 0, 5);
    for (int again = 0; again < 2; ++again) EXPECT_THROW(group.send(at::ones({1 << 20}), 0).wait(), CommError);
    sigset_t blocked, pending;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    sigpending(&pending);
    EXPECT_FALSE(sigismember(&blocked, SIGPIPE));
    EXPECT_FALSE(sigismember(&pending, SIGPIPE));
  });
  EXPECT_EQ(signal(SIGPIPE, before), SIG_DFL);
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

TEST(Gloo, AnAbortEndsWhatIsUnderWayInGroupsSplitOff) {
  SKIP_WITHOUT_GLOO();
  run_threads(2, [](const Group& group) {
    const Group part = group.split(0).split(0);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(500));
      return;
    }
    auto work = part.recv(at::ones({10}), 1);
    group.abort("rank 1 was lost");
    EXPECT_THROW(work.wait(), CommError);
    EXPECT_THROW(part.barrier().wait(), CommError);
  });
}

TEST(Gloo, InDebugModeDifferentCallsAreAnErrorThatNamesBoth) {
  SKIP_WITHOUT_GLOO();
  setenv("LOCKSTEP_DEBUG", "1", 1);
  run_threads(3, [](const Group& group) {
    test::check_all_reduce(group, 100, at::kFloat);
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
