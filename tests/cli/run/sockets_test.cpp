// SPDX-License-Identifier: Apache-2.0
// A run on one host can be reached from that host alone: nothing asks who it is that connects.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// A process and all that it started, from the fields "PID (NAME) STATE PARENT" of /proc/PID/stat.
std::set<int> family_of(int root) {
  std::map<int, int> parents;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc", gone)) {
    std::ifstream file(entry.path() / "stat");
    std::string stat, state;
    int parent = 0;
    if (!std::getline(file, stat) || !isdigit(entry.path().filename().string()[0])) continue;
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    if (fields >> state >> parent) parents[std::stoi(entry.path().filename())] = parent;
  }
  std::set<int> family{root};
  for (size_t before = 0; before != family.size();) {
    before = family.size();
    for (const auto& [process, parent] : parents)
      if (family.contains(parent)) family.insert(process);
  }
  return family;
}

std::set<std::string> sockets_of(int process) {
  std::set<std::string> inodes;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(text("/proc/", process, "/fd"), gone)) {
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// The addresses, in hexadecimal as the kernel has them, where a process and all that it started listen; processes that
// share a socket have it once.
std::vector<std::string> listening(int root) {
  std::set<std::string> inodes;
  for (int process : family_of(root)) inodes.merge(sockets_of(process));
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line, number, local, remote, state, skipped, inode;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      fields >> number >> local >> remote >> state;
      for (int field = 0; field < 5; ++field) fields >> skipped;
      fields >> inode;
      if (state == "0A" && inodes.contains(inode)) addresses.push_back(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

bool is_loopback(const std::string& address) {
  const std::string v4 = address.size() == 8                               ? address
                         : address.starts_with("0000000000000000FFFF0000") ? address.substr(24)
                                                                           : "";
  return v4.empty() ? address == "00000000000000000000000001000000" : v4.ends_with("7F");
}

void expect_loopback_alone(const Program& program, size_t at_least) {
  const auto addresses = listening(program.process());
  EXPECT_GE(addresses.size(), at_least);
  for (const auto& address : addresses) EXPECT_TRUE(is_loopback(address)) << address;
}

TEST(Sockets, TheTestTellsLoopbackFromOtherAddresses) {
  for (const char* address : {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"})
    EXPECT_TRUE(is_loopback(address)) << address;
  for (const char* address : {"00000000", "0200A8C0", "00000000000000000000000000000000"})
    EXPECT_FALSE(is_loopback(address)) << address;
}

// The launcher's store, and a socket of each rank.
TEST(Sockets, ARunOnOneHostListensOnLoopbackAlone) {
  Program program({"run", "-n", "2", "--", built("tests/cli/endless_ranks")});
  program.wait_for_output("10 rounds", 2);
  expect_loopback_alone(program, 3);
}

TEST(Sockets, PythonsTorchDistributedListensOnLoopbackAloneToo) {
  const std::string python = LOCKSTEP_TORCH_PYTHON;
  if (!fs::exists(python)) GTEST_SKIP() << "no " << python << ": a libtorch without Python";
  Program program({"run", "-n", "2", "--", python, LOCKSTEP_ALL_REDUCE_PY, "stay"});
  program.wait_for_output("sum ", 2);
  expect_loopback_alone(program, 3);
}

// Without a launcher of ours rank 0 serves the store.
TEST(Sockets, RanksThatTorchrunsVariablesPlaceOnLoopbackListenThereAlone) {
  const auto rank = [](const char* number) {
    return ProgramOptions{.program = built("tests/cli/endless_ranks"),
                          .environment = {{"RANK", number},
                                          {"WORLD_SIZE", "2"},
                                          {"LOCAL_RANK", number},
                                          {"LOCAL_WORLD_SIZE", "2"},
                                          {"MASTER_ADDR", "127.0.0.1"},
                                          {"MASTER_PORT", std::to_string(20000 + getpid() % 10000)}}};
  };
  Program first({}, rank("0")), second({}, rank("1"));
  first.wait_for_output("10 rounds");
  expect_loopback_alone(first, 2);
  expect_loopback_alone(second, 1);
}

}  // namespace
}  // namespace lockstep::cli
