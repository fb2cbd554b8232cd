// SPDX-License-Identifier: Apache-2.0
// The promise: the placement of R replicas changes nothing. One network, 20 steps, R = 8; threads, processes and a
// resumed run must end in the same bits, and a broken order of addition must not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "cli/program.h"
#include "lockstep/comm/connect.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct Placed {
  int processes;
  std::string options;
};

// The hash that a run prints.
std::string run(const std::string& task, const Placed& placed) {
  std::vector<std::string> words;
  if (placed.processes > 1)
    words = {
        "run", "--no-prefix", "-n", std::to_string(placed.processes), "--", cli::built("tests/parallel/contract_run")};
  words.push_back(task);
  std::istringstream options(placed.options);
  for (std::string word; options >> word;) words.push_back(word);
  cli::ProgramOptions program;
  if (placed.processes == 1) program.program = cli::built("tests/parallel/contract_run");
  const cli::Ended ended = cli::run_program(words, program);
  EXPECT_EQ(ended.exit_code, 0) << task << " " << placed.options << ":\n" << ended.err;
  return ended.out;
}

bool joins_processes() {
  return !comm::backends().empty();
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
  if (!joins_processes()) GTEST_SKIP() << "this build has no backend that joins processes";
  for (const Placed& placed : {Placed{2, "--threads 2"}, Placed{3, "--blocks 3,3,2"}, Placed{8, ""}})
    EXPECT_EQ(run(GetParam(), placed), expected(GetParam())) << placed.processes << " processes " << placed.options;
}

TEST_P(Contract, AResumedRunGoesOnAsIfNothingHadHappened) {
  const std::string file = text(std::filesystem::temp_directory_path().string(), "/contract_", getpid(), ".pt");
  const Placed first = joins_processes() ? Placed{3, "--blocks 1,5,2 --to 10 --save " + file}
                                         : Placed{1, "--threads 8 --to 10 --save " + file};
  run(GetParam(), first);
  EXPECT_EQ(run(GetParam(), {1, "--threads 2 --from 10 --load " + file}), expected(GetParam()));
  std::filesystem::remove(file);
}

TEST_P(Contract, ABrokenOrderOfAdditionShows) {
  EXPECT_NE(run(GetParam(), {1, "--threads 2 --rotate 1"}), expected(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(, Contract, ::testing::Values("lenet", "resnet18", "lstm", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

// What the canonical order is for: the ring adds up in an order that follows the processes.
TEST(ContractOfRing, IsNone) {
  if (!joins_processes()) GTEST_SKIP() << "this build has no backend that joins processes";
  EXPECT_NE(run("lenet", {3, "--blocks 3,3,2 --order ring"}), expected("lenet"));
}

}  // namespace
}  // namespace lockstep
