// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/parallel_for.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

class ParallelFor : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(2); }
  void TearDown() override { at::set_num_threads(1); }
};

TEST_F(ParallelFor, passes_each_index_once) {
  std::vector<int> seen(1000);
  parallel_for(0, 1000, 7, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) ++seen[i];
  });
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
}

TEST_F(ParallelFor, runs_two_pieces_at_once_on_two_threads) {
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  std::vector<bool> met(2);
  parallel_for(0, 2, 1, [&](int64_t from, int64_t to) {
    std::unique_lock lock(mutex);
    ++arrived;
    changed.notify_all();
    const bool both = changed.wait_for(lock, std::chrono::seconds(20), [&] { return arrived == 2; });
    for (int64_t i = from; i < to; ++i) met[i] = both;
  });
  EXPECT_EQ(met, std::vector<bool>({true, true})) << "one piece ended before the other began";
}

TEST_F(ParallelFor, keeps_to_the_caller_where_one_thread_is_asked_for) {
  at::set_num_threads(1);
  int calls = 0;
  parallel_for(0, 100, 1, [&](int64_t from, int64_t to) {
    ++calls;
    EXPECT_EQ(to - from, 100);
  });
  EXPECT_EQ(calls, 1);
}

TEST_F(ParallelFor, rethrows_what_a_piece_throws) {
  EXPECT_THROW(parallel_for(0, 2, 1,
                            [](int64_t from, int64_t) {
                              if (from == 1) throw std::runtime_error("the second");
                            }),
               std::runtime_error);
}

}  // namespace
}  // namespace lockstep
