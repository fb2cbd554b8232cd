// SPDX-License-Identifier: Apache-2.0
#include "lockstep/archive/detail/disk_copy.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "lockstep/archive/tensor_file.h"

namespace lockstep::archive {
namespace {

// Of a tensor's pages, how many this process has mapped: the system's own files tell of each.
int64_t mapped_pages(const at::Tensor& tensor) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) / page;
  const auto last = (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) + tensor.nbytes() + page - 1) / page;
  std::vector<uint64_t> entries(last - first);
  FILE* const map = std::fopen("/proc/self/pagemap", "rb");
  EXPECT_NE(map, nullptr);
  EXPECT_EQ(std::fseek(map, static_cast<long>(first * sizeof(uint64_t)), SEEK_SET), 0);
  EXPECT_EQ(std::fread(entries.data(), sizeof(uint64_t), entries.size(), map), entries.size());
  std::fclose(map);
  return std::ranges::count_if(entries, [](uint64_t entry) { return (entry >> 63) != 0; });
}

TEST(DiskCopy, HasTheValuesRowMajorInMemoryOfItsOwn) {
  at::Tensor tensor = at::randn({300, 200}).t();
  const at::Tensor copy = disk_copy(tensor);
  EXPECT_TRUE(copy.equal(tensor));
  EXPECT_TRUE(copy.is_contiguous());
  const at::Tensor before = copy.clone();
  tensor.zero_();
  EXPECT_TRUE(copy.equal(before));
}

TEST(DiskCopy, PagesLeaveThisProcessAndComeBack) {
  const at::Tensor tensor = at::arange(1 << 20, at::kLong), copy = disk_copy(tensor);
  EXPECT_EQ(mapped_pages(copy), 0);
  EXPECT_TRUE(copy.equal(tensor));
  EXPECT_EQ(mapped_pages(copy), int64_t{8} * (1 << 20) / sysconf(_SC_PAGESIZE));
  let_go(copy);
  EXPECT_EQ(mapped_pages(copy), 0);
  EXPECT_TRUE(copy.equal(tensor));
}

TEST(DiskCopy, WhatIsWrittenToItStays) {
  const at::Tensor copy = disk_copy(at::arange(1 << 16));
  copy.add_(1);
  let_go(copy);
  EXPECT_TRUE(copy.equal(at::arange(1, (1 << 16) + 1)));
}

TEST(DiskCopy, OthersLoseNothing) {
  for (const at::Tensor& tensor : {at::arange(1 << 20), at::arange(3), at::Tensor(at::arange(1 << 20)).slice(0, 7)}) {
    const at::Tensor before = tensor.clone();
    let_go(tensor);
    EXPECT_TRUE(tensor.equal(before));
  }
  EXPECT_NO_THROW(let_go(at::Tensor()));
}

TEST(DiskCopy, WhatIsSmallOrFindsNoPlaceIsInMemory) {
  const at::Tensor small = disk_copy(at::arange(5));
  EXPECT_TRUE(small.equal(at::arange(5)));
  const char* const told = std::getenv("TMPDIR");
  const std::string before = told == nullptr ? "" : told;
  setenv("TMPDIR", "/proc/no/such/folder", 1);
  const at::Tensor large = at::arange(1 << 16), copy = disk_copy(large);
  EXPECT_TRUE(copy.equal(large));
  let_go(copy);
  EXPECT_TRUE(copy.equal(large));
  if (told == nullptr)
    unsetenv("TMPDIR");
  else
    setenv("TMPDIR", before.c_str(), 1);
}

TEST(DiskCopy, IsWrittenToAFileAndLetGo) {
  const auto file = std::filesystem::path(testing::TempDir()) / "disk_copy.pt";
  const at::Tensor tensor = at::randn({512, 512}), copy = disk_copy(tensor);
  write_tensor_file(file.string(), {Value::Dict{{"weight", {copy}}}});
  EXPECT_EQ(mapped_pages(copy), 0);
  EXPECT_TRUE(read_tensor_file(file.string()).at("weight").as<at::Tensor>("weight").equal(tensor));
}

}  // namespace
}  // namespace lockstep::archive
