// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using detail::choose_allocator;

// What this process has paid so far in pages that the kernel had to find for it.
long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// As a training step does: takes, writes and frees tensors of up to 100 MiB.
void use_memory() {
  for (size_t mebibytes : {1, 20, 40, 100}) {
    const c10::DataPtr block = c10::GetCPUAllocator()->allocate(mebibytes << 20);
    std::memset(block.get(), 1, mebibytes << 20);
    asm volatile("" : : "r"(block.get()) : "memory");  // keep the writes
  }
}

TEST(Allocator, TheUsersWishesComeBeforeOurs) {
  EXPECT_EQ(choose_allocator(nullptr, true, false), AllocatorChoice::tuned);
  EXPECT_EQ(choose_allocator("", true, false), AllocatorChoice::tuned);
  EXPECT_EQ(choose_allocator("tuned", true, false), AllocatorChoice::tuned);
  EXPECT_EQ(choose_allocator(nullptr, true, true), AllocatorChoice::by_user);
  EXPECT_EQ(choose_allocator("system", true, false), AllocatorChoice::as_is);
  EXPECT_EQ(choose_allocator(nullptr, false, false), AllocatorChoice::not_glibc);
}

TEST(Allocator, AnUnknownWishIsAnError) {
  try {
    choose_allocator("fast", true, false);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "LOCKSTEP_MALLOC: got 'fast', expected tuned or system");
  }
}

TEST(Allocator, OnceTunedAStepFindsTheMemoryOfTheStepsBefore) {
  if (tune_allocator() != AllocatorChoice::tuned) GTEST_SKIP() << "malloc is " << describe(tune_allocator());
  EXPECT_EQ(tune_allocator(), AllocatorChoice::tuned);
  // Untuned, every round maps all of them anew: 41,216 pages of 4 KiB.
  const auto check = [] {
    use_memory();
    const long before = page_faults();
    use_memory();
    EXPECT_LT(page_faults() - before, 1000);
  };
  check();
  std::thread(check).join();
}

}  // namespace
}  // namespace lockstep
