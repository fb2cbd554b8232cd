// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "comm/collective_checks.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"
#include "support/threads.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using test::contribution;
using ::testing::AllOf;
using ::testing::HasSubstr;

void run_ranks(int size, const std::function<void(const Group&)>& body, milliseconds timeout = milliseconds(20000)) {
  at::set_num_threads(1);
  auto groups = local_groups(size, timeout);
  lockstep::test::run_threads(size, [&](int rank) {
    const Group group = std::exchange(groups[rank], Group());
    body(group);
  });
}

// The error that body() throws.
CommError error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error;
  }
  ADD_FAILURE() << "expected a CommError";
  return CommError(-1, "", 0, "");
}

class LocalRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, LocalRanks, ::testing::Values(1, 2, 3, 4, 7, 8));

TEST_P(LocalRanks, EveryCollectiveGivesWhatItsDefinitionSays) {
#if defined(__SANITIZE_THREAD__)
  constexpr int64_t longest = 1 << 17;  // several slices still, in a tenth of the time
#else
  constexpr int64_t longest = 1 << 20;
#endif
  run_ranks(GetParam(), [](const Group& group) { test::check_everything(group, longest); });
}

TEST(Local, AGroupOfOneIsAWorkingGroup) {
  test::check_everything(Group(), 4096);
}

TEST(Local, AThousandSmallOperationsAgree) {
  run_ranks(3, [](const Group& group) {
    for (int64_t i = 0; i < 1000; ++i) {
      auto tensor = at::full({8}, double(i + group.rank()), at::kFloat);
      group.all_reduce(tensor).wait();
      ASSERT_EQ(tensor[7].item<float>(), 3.0f * i + 3);
    }
  });
}

TEST(Local, AWorkIsDoneWithoutThisRankWaiting) {
  run_ranks(2, [](const Group& group) {
    auto tensor = contribution(group.rank(), 1 << 18, at::kFloat);
    auto work = group.all_reduce(tensor);
    if (group.rank() == 0) work.wait();
    if (group.rank() == 1)
      while (!work.done()) std::this_thread::yield();
    EXPECT_TRUE(at::equal(tensor, test::tree_reference(ReduceOp::sum, 2, 1 << 18, at::kFloat)));
    work.wait();
  });
}

TEST(Local, WaitingForALimitedTimeGoesOnLater) {
  run_ranks(2, [](const Group& group) {
    auto one = at::ones({4});
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(60));
    auto work = group.all_reduce(one);
    if (group.rank() == 0) {
      EXPECT_FALSE(work.wait_for(milliseconds(5)));
      EXPECT_FALSE(work.done());
    }
    work.wait();
    EXPECT_TRUE(at::equal(one, at::full({4}, 2.0f)));
  });
}

TEST(Local, ARankThatDoesNotComeIsNamedOnAllOthers) {
  run_ranks(
      3,
      [](const Group& group) {
        auto one = at::ones({4});
        if (group.rank() == 1) {
          std::this_thread::sleep_for(milliseconds(600));
          const auto error = error_of([&] { group.all_reduce(one).wait(); });
          EXPECT_THAT(error.what(), HasSubstr("rank 1 did not come"));
          return;
        }
        const auto error =
            error_of([&] { group.all_reduce(one, ReduceOp::sum, {.timeout = milliseconds(200)}).wait(); });
        EXPECT_EQ(error.rank(), 1);
        EXPECT_EQ(error.operation(), "all_reduce");
        EXPECT_GE(error.seconds(), 0.15);
        EXPECT_LT(error.seconds(), 10);
        // The group is broken: no later call waits for anybody.
        error_of([&] { group.barrier().wait(); });
      },
      milliseconds(60000));
}

TEST(Local, ARankThatLeavesFailsWhatWaitsForItAtOnce) {
  run_ranks(
      3,
      [](const Group& group) {
        if (group.rank() == 2) return;  // its member is destroyed here
        const auto error = error_of([&] { group.barrier().wait(); });
        EXPECT_EQ(error.rank(), 2);
        EXPECT_THAT(error.what(), HasSubstr("rank 2 has left the group"));
      },
      std::chrono::minutes(5));
}

TEST(Local, APartKnowsWhoLeftItBeforeTheOthersCame) {
  run_ranks(3, [](const Group& group) {
    for (int i = 0; i < 100; ++i) {
      const auto part = group.split(0);
      if (group.rank() == 0) continue;  // its member is destroyed here
      EXPECT_THAT(error_of([&] { part.barrier().wait(); }).what(), HasSubstr("rank 0 has left the group"));
    }
  });
}

TEST(Local, WhatARankPostedBeforeItLeftStillCounts) {
  run_ranks(2, [](const Group& group) {
    auto tensor = contribution(group.rank(), 5000, at::kFloat);
    auto work = group.all_reduce(tensor);
    if (group.rank() == 1) return;
    work.wait();
    EXPECT_TRUE(at::equal(tensor, test::tree_reference(ReduceOp::sum, 2, 5000, at::kFloat)));
  });
}

TEST(Local, DifferentCallsAreAnErrorThatNamesBoth) {
  const auto expect_mismatch = [](const std::function<void(const Group&)>& body, const std::string& first,
                                  const std::string& second) {
    run_ranks(2, [&](const Group& group) {
      const auto error = error_of([&] { body(group); });
      EXPECT_THAT(error.what(), AllOf(HasSubstr(first), HasSubstr(second)));
    });
  };
  expect_mismatch([](const Group& g) { g.rank() == 0 ? g.barrier().wait() : g.all_reduce(at::ones({3})).wait(); },
                  "rank 0 called barrier()", "rank 1 called all_reduce(sum, Float[3])");
  expect_mismatch([](const Group& g) { g.all_reduce(at::ones({3 + g.rank()})).wait(); }, "Float[3]", "Float[4]");
  expect_mismatch([](const Group& g) { g.all_reduce(at::ones({3}, g.rank() ? at::kInt : at::kLong)).wait(); }, "Int[3]",
                  "Long[3]");
  expect_mismatch([](const Group& g) { g.broadcast(at::ones({3}), g.rank()).wait(); }, "root 0", "root 1");
  expect_mismatch([](const Group& g) { g.rank() ? g.send(at::ones({3}), 0).wait() : g.recv(at::ones({2}), 1).wait(); },
                  "send(Float[3]", "recv(Float[2]");
  const std::vector<int64_t> one{1, 1}, two{2, 0};
  expect_mismatch(
      [&](const Group& g) { g.all_to_all(at::ones({2}), at::zeros({2}), one, g.rank() ? two : one).wait(); },
      "all_to_all: rank 1 sends", "elements to rank");
}

TEST(Local, AnAbortedGroupFailsWithItsReasonEverywhere) {
  run_ranks(2, [](const Group& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(20));
      return group.abort("replica 1 threw: out of memory");
    }
    const auto error = error_of([&] { group.barrier().wait(); });
    EXPECT_EQ(error.rank(), 1);
    EXPECT_THAT(error.what(), HasSubstr("out of memory"));
  });
}

TEST(Local, SeveralGroupsWorkSideBySide) {
  auto first = local_groups(2), second = local_groups(2);
  lockstep::test::run_threads(2, [&](int rank) {
    auto a = at::ones({10}), b = at::ones({10});
    auto one = first[rank].all_reduce(a), two = second[rank].all_reduce(b);
    two.wait();
    one.wait();
    EXPECT_EQ(a.sum().item<float>() + b.sum().item<float>(), 40.0f);
  });
}

TEST(Group, RefusesBadArgumentsAndSaysWhatItExpected) {
  const Group group;
  const auto message_of = [](const std::function<void()>& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message_of([&] { group.all_reduce(at::Tensor()).wait(); }), HasSubstr("all_reduce: tensor is undefined"));
  EXPECT_THAT(message_of([&] { group.all_reduce(at::ones({2}, at::kComplexFloat)).wait(); }),
              HasSubstr("expected float32"));
  EXPECT_THAT(message_of([&] { group.all_reduce(at::ones({2}, at::kByte)).wait(); }), HasSubstr("int64 or bool"));
  EXPECT_THAT(message_of([&] { group.all_reduce(at::ones({2}, at::kInt), ReduceOp::mean).wait(); }),
              HasSubstr("mean of Int"));
  EXPECT_THAT(message_of([&] { group.broadcast(at::ones({2}), 1).wait(); }),
              HasSubstr("root is rank 1, expected 0 to 0"));
  EXPECT_THAT(message_of([&] { group.all_gather(at::ones({3}), at::ones({2})).wait(); }),
              HasSubstr("1 times the elements"));
  EXPECT_THAT(message_of([&] { group.send(at::ones({3}), 0).wait(); }), HasSubstr("expected another"));
  EXPECT_THAT(message_of([&] { local_groups(0); }), HasSubstr("size is 0"));
}

TEST(Group, GradientsAndVersionsAreNotDisturbed) {
  run_ranks(2, [](const Group& group) {
    auto weight = at::ones({3, 4}).t().set_requires_grad(true);
    group.all_reduce(weight).wait();
    EXPECT_EQ(weight.sum().item<float>(), 24.0f);
    EXPECT_TRUE(weight.is_leaf());
  });
}

}  // namespace
}  // namespace lockstep::comm
