// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/processor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A folder that looks like the root of a Linux host, as far as read_cpu_info looks.
class FakeHost : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("lockstep_cpu_info_" + std::to_string(getpid()));
    write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 85\nmodel name\t: Xeon 8 @ 2GHz: x\n");
    write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& content) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << content;
  }

  // `cpus` hardware threads on cores of two threads each: cpu 0 and cpu 0 + cores share a core, as Linux numbers them.
  void add_cpus(int cpus) const {
    for (int cpu = 0; cpu < cpus; ++cpu) {
      const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
      write(folder + "/topology/core_id", std::to_string(cpu % (cpus / 2)) + "\n");
      write(folder + "/topology/physical_package_id", "0\n");
      write(folder + "/cache/index0/level", "1\n");
      write(folder + "/cache/index0/type", "Data\n");
      write(folder + "/cache/index0/size", "48K\n");
      write(folder + "/cache/index1/level", "1\n");
      write(folder + "/cache/index1/type", "Instruction\n");
      write(folder + "/cache/index1/size", "32K\n");
      write(folder + "/cache/index2/level", "2\n");
      write(folder + "/cache/index2/type", "Unified\n");
      write(folder + "/cache/index2/size", "2M\n");
    }
  }

  CpuInfo read(const std::vector<int>& allowed) const { return detail::read_cpu_info(root_, allowed); }

  fs::path root_;
};

TEST_F(FakeHost, NamesMemoryAndCachesAreRead) {
  add_cpus(4);
  const CpuInfo info = read({0, 1, 2, 3});
  EXPECT_EQ(info.vendor, "GenuineIntel");
  EXPECT_EQ(info.model, "Xeon 8 @ 2GHz: x");
  EXPECT_EQ(info.memory_bytes, int64_t{16} << 30);
  EXPECT_EQ(info.l1d_bytes, 48 << 10);
  EXPECT_EQ(info.l2_bytes, 2 << 20);
  EXPECT_EQ(info.l3_bytes, 0);
}

TEST_F(FakeHost, TwoThreadsOfOneCoreCountOnce) {
  add_cpus(8);
  EXPECT_EQ(read({0, 1, 2, 3, 4, 5, 6, 7}).cores, 4);
  EXPECT_EQ(read({1, 5}).cores, 1);
  EXPECT_EQ(read({0, 1, 5}).cores, 2);
  EXPECT_EQ(read({1, 5}).host_cores, 4);
}

TEST_F(FakeHost, WithoutATopologyEveryThreadIsACore) {
  EXPECT_EQ(read({0, 1, 2}).cores, 3);
}

TEST_F(FakeHost, AQuotaOfVersion2LimitsTheCores) {
  add_cpus(16);
  write("proc/self/cgroup", "0::/pod/container\n");
  write("sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/pod/memory.max", "1073741824\n");
  write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  const CpuInfo info = read({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(info.cores, 3);
  EXPECT_EQ(info.memory_bytes, 1 << 30);
}

TEST_F(FakeHost, AQuotaOfVersion1LimitsTheCores) {
  add_cpus(16);
  write("proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n");
  const CpuInfo info = read({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(info.cores, 1);  // half a core is one slot
  EXPECT_EQ(info.memory_bytes, int64_t{2} << 30);
}

// In a container the file names the host's path, but the container's own group is mounted as the root.
TEST_F(FakeHost, AQuotaAtTheContainersRootIsFound) {
  add_cpus(16);
  write("proc/self/cgroup", "0::/host/path/that/is/not/mounted\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(read({0, 1, 2, 3, 4, 5, 6, 7}).cores, 2);
}

TEST_F(FakeHost, AnEmptyHostHasOneUnknownCore) {
  fs::remove_all(root_);
  const CpuInfo info = read({0});
  EXPECT_EQ(info.cores, 1);
  EXPECT_EQ(info.model, "unknown CPU");
}

TEST(CpuInfo, ThisHostHasAtLeastOneCoreAndSomeMemory) {
  EXPECT_GE(cpu_info().cores, 1);
  EXPECT_LE(cpu_info().cores, cpu_info().host_cores);
  EXPECT_GT(cpu_info().memory_bytes, 0);
}

}  // namespace
}  // namespace lockstep
