// SPDX-License-Identifier: Apache-2.0
// The promise: the placement of R replicas changes nothing. One network, 20 steps, R = 8; threads, processes and a
// resumed run must end in the same bits, and a broken order of addition must not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct Placed {
  int processes;
  std::string options;
};

// The hash that a run prints.
std::string run(const std::string& task, const Placed& placed) {
  std::string command = text("'" LOCKSTEP_CONTRACT_RUN "' ", task, " ", placed.options);
#ifdef LOCKSTEP_PROGRAM
  if (placed.processes > 1)
    command = text("'" LOCKSTEP_PROGRAM "' run --no-prefix -n ", placed.processes, " -- ", command);
#endif
  const std::string log = text(std::filesystem::temp_directory_path().string(), "/contract_", getpid(), ".log");
  FILE* pipe = popen((command + " 2>'" + log + "'").c_str(), "r");
  char line[128] = {};
  const bool read = pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr;
  const int code = pclose(pipe);
  if (!read || code != 0) {
    ADD_FAILURE() << command << " failed:";
    static_cast<void>(std::system(("cat '" + log + "'").c_str()));
  }
  std::filesystem::remove(log);
  return line;
}

// What every placement must end in: eight replicas on two threads.
const std::string& expected(const std::string& task) {
  static std::map<std::string, std::string> known;
  auto& hash = known[task];
  if (hash.empty()) hash = run(task, {1, "--threads 2"});
  EXPECT_EQ(hash.size(), 65u);
  return hash;
}

class Contract : public ::testing::TestWithParam<const char*> {};

TEST_P(Contract, ThreadsDoNotChangeABit) {
  for (const char* options : {"--threads 1", "--threads 8"})
    EXPECT_EQ(run(GetParam(), {1, options}), expected(GetParam())) << options;
}

TEST_P(Contract, ProcessesDoNotChangeABit) {
#ifndef LOCKSTEP_PROGRAM
  GTEST_SKIP() << "this build has no Gloo or no command line program";
#endif
  for (const Placed& placed : {Placed{2, "--threads 2"}, Placed{3, "--blocks 3,3,2"}, Placed{8, ""}})
    EXPECT_EQ(run(GetParam(), placed), expected(GetParam())) << placed.processes << " processes " << placed.options;
}

TEST_P(Contract, AResumedRunGoesOnAsIfNothingHadHappened) {
  const std::string file = text(std::filesystem::temp_directory_path().string(), "/contract_", getpid(), ".pt");
#ifdef LOCKSTEP_PROGRAM
  const Placed first{3, "--blocks 1,5,2 --to 10 --save '" + file + "'"};
#else
  const Placed first{1, "--threads 8 --to 10 --save '" + file + "'"};
#endif
  run(GetParam(), first);
  EXPECT_EQ(run(GetParam(), {1, "--threads 2 --from 10 --load '" + file + "'"}), expected(GetParam()));
  std::filesystem::remove(file);
}

TEST_P(Contract, ABrokenOrderOfAdditionShows) {
  EXPECT_NE(run(GetParam(), {1, "--threads 2 --rotate 1"}), expected(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(, Contract, ::testing::Values("lenet", "resnet18", "lstm", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

#ifdef LOCKSTEP_PROGRAM
// What the canonical order is for: the ring adds up in an order that follows the processes.
TEST(ContractOfRing, IsNone) {
  EXPECT_NE(run("lenet", {3, "--blocks 3,3,2 --order ring"}), expected("lenet"));
}
#endif

}  // namespace
}  // namespace lockstep
