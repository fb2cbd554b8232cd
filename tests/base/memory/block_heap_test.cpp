// SPDX-License-Identifier: Apache-2.0
#include "base/memory/block_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool is_aligned(const void* block) {
  return reinterpret_cast<uintptr_t>(block) % 64 == 0;
}

TEST(BlockHeap, WhatIsFreeIsUsedAgain) {
  BlockHeap heap(64 * kMiB);
  void* const first = heap.allocate(kMiB);
  void* const second = heap.allocate(3 * kMiB);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(is_aligned(first) && is_aligned(second));
  EXPECT_TRUE(heap.has(first) && heap.has(second));
  EXPECT_FALSE(heap.has(&heap));
  heap.free(first);
  EXPECT_EQ(heap.allocate(kMiB), first);
  heap.free(second);
  EXPECT_EQ(heap.allocate(3 * kMiB), second);
}

TEST(BlockHeap, TheSmallestPartThatIsLargeEnoughIsTaken) {
  BlockHeap heap(64 * kMiB);
  std::vector<void*> blocks;
  for (const size_t mebibytes : {8, 1, 3, 1, 5, 1}) blocks.push_back(heap.allocate(mebibytes * kMiB));
  for (const size_t which : {0, 2, 4}) heap.free(blocks[which]);
  EXPECT_EQ(heap.allocate(2 * kMiB), blocks[2]);
  EXPECT_EQ(heap.allocate(5 * kMiB), blocks[4]);
  EXPECT_EQ(heap.allocate(6 * kMiB), blocks[0]);
}

TEST(BlockHeap, FreeNeighboursJoin) {
  const std::vector<std::vector<size_t>> orders{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 3, 1}, {1, 3, 0, 2}};
  for (const auto& order : orders) {
    BlockHeap heap(16 * kMiB);
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(heap.allocate(3 * kMiB));
    for (const size_t which : order) heap.free(blocks[which]);
    EXPECT_EQ(heap.allocate(15 * kMiB), blocks[0]);  // also with what has not been used yet
  }
}

TEST(BlockHeap, WhereTheRangeIsFullThereIsNone) {
  BlockHeap heap(4 * kMiB);
  EXPECT_EQ(heap.allocate(4 * kMiB), nullptr);
  EXPECT_EQ(heap.allocate(SIZE_MAX), nullptr);
  void* const block = heap.allocate(3 * kMiB);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(heap.allocate(2 * kMiB), nullptr);
  heap.free(block);
  EXPECT_EQ(heap.allocate(2 * kMiB), block);
  EXPECT_EQ(BlockHeap(SIZE_MAX / 2).allocate(1), nullptr);  // no such range to be had
}

// Blocks of four threads, each written wholly with a number of its own and read before it is freed, by another thread
// every second time.
TEST(BlockHeap, BlocksOfManyThreadsKeepWhatIsWritten) {
  BlockHeap heap(1024 * kMiB);
  struct Block {
    unsigned char* bytes = nullptr;
    size_t size = 0;
    unsigned char mark = 0;
  };
  const auto has_kept = [](const Block& block) {
    return std::all_of(block.bytes, block.bytes + block.size, [&](unsigned char byte) { return byte == block.mark; });
  };
  std::atomic<int> wrong = 0;
  Mutex mutex;
  std::vector<Block> handed;
  const auto work = [&](unsigned char seed) {
    std::mt19937 random(seed);
    std::vector<Block> own;
    for (int i = 0; i < 300; ++i) {
      Block block{.size = 1 + random() % (random() % 4 == 0 ? kMiB : kMiB / 16),
                  .mark = static_cast<unsigned char>(random())};
      block.bytes = static_cast<unsigned char*>(heap.allocate(block.size));
      if (!is_aligned(block.bytes)) ++wrong;
      std::memset(block.bytes, block.mark, block.size);
      const Lock lock(mutex);
      std::vector<Block>& kept = random() % 2 == 0 ? own : handed;
      kept.push_back(block);
      if (kept.size() < 8) continue;
      const auto chosen = kept.begin() + static_cast<int64_t>(random() % kept.size());
      if (!has_kept(*chosen)) ++wrong;
      heap.free(chosen->bytes);
      kept.erase(chosen);
    }
    for (const Block& block : own) {
      if (!has_kept(block)) ++wrong;
      heap.free(block.bytes);
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned char t = 0; t < 4; ++t) threads.emplace_back(work, t);
  threads.clear();
  for (const Block& block : handed) {
    if (!has_kept(block)) ++wrong;
    heap.free(block.bytes);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_NE(heap.allocate(1023 * kMiB), nullptr);  // all of it has joined
}

}  // namespace
}  // namespace lockstep
