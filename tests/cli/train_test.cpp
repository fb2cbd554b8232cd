// SPDX-License-Identifier: Apache-2.0
// The whole program: `lockstep train`, on real data where the Debian package is installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "cli/program.h"
#include "lockstep/comm/connect.h"
#include "support/full_disk.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string some_data() {
  return std::filesystem::exists("/usr/share/datasets/fashion-mnist") ? "fashion-mnist" : "synthetic:1x28x28:10:6000";
}

// One epoch of 20 steps, R = 8.
Words recipe() {
  return {"train",      "lenet", "--data",          some_data(), "--replicas", "8",    "--batch",    "256",
          "--examples", "5120",  "--test-examples", "1000",      "--lr",       "0.2",  "--epochs",   "1",
          "--momentum", "0.9",   "--init",          "xavier",    "--augment",  "flip", "--no-curves"};
}

// What every placement must end in.
const std::string& expected() {
  static const std::string hash = [] {
    const TemporaryFolder folder;
    expect_success(recipe() + Words{"--devices", "1", "--out", folder.file("run")});
    EXPECT_EQ(hash_of(folder.file("run/weights.pt")), hash_of(folder.file("run/last.pt")));
    EXPECT_EQ(hash_of(folder.file("run/weights.safetensors")), hash_of(folder.file("run/last.pt")));
    return hash_of(folder.file("run"));
  }();
  return hash;
}

TEST(TrainContract, TwoThreadsGiveTheBitsOfOne) {
  const TemporaryFolder folder;
  expect_success(recipe() + Words{"--devices", "2", "--out", folder.file("run"), "--check-data"});
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

TEST(TrainContract, ProcessesGiveTheBitsOfOne) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  for (const char* processes : {"2", "3"}) {
    const TemporaryFolder folder;
    const Words run{"run", "-n", processes, "--", built("bin/lockstep")};
    expect_success(run + recipe() + Words{"--devices", "1", "--out", folder.file("run"), "--check-data"});
    EXPECT_EQ(hash_of(folder.file("run")), expected()) << processes;
  }
}

TEST(TrainContract, ARunThatWasKilledGoesOnToTheSameBits) {
  const TemporaryFolder folder;
  const Words save{"--out", folder.file("run"), "--save-every", "2", "--check-data"};
  {
    Program killed(recipe() + save + Words{"--devices", "1"});
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.file("run/last.pt")); }));
    killed.send(SIGKILL);
    EXPECT_EQ(killed.wait().exit_code, 128 + SIGKILL);
  }
  const Ended resumed = run_program({"train", "--resume", folder.file("run"), "--devices", "2"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("(epoch 1, batch "));
  EXPECT_EQ(hash_of(folder.file("run")), expected());
}

// 13 steps an epoch: each part of the run but the last ends in the middle of one.
TEST(TrainContract, ARunGoesOnUnderOtherSplitsToTheSameBits) {
  const TemporaryFolder folder;
  const std::string alone = folder.file("alone"), run = folder.file("run");
  const Words recipe{"train",      "mlp",
                     "--data",     "synthetic:1x8x8:4:400",
                     "--batch",    "32",
                     "--epochs",   "2",
                     "--set",      "hidden=16,16,16",
                     "--set",      "dropout=0.2",
                     "--replicas", "4",
                     "--slices",   "2",
                     "--momentum", "0.9",
                     "--no-curves"};
  expect_success(recipe + Words{"--devices", "1", "--out", alone});
  expect_success(recipe + Words{"--devices", "cpu:2", "--split", "p2", "--steps", "5", "--out", run});
  const Words resumed{"train", "--resume", run};
  expect_success(resumed + Words{"--devices", "cpu:2", "--split", "t2", "--steps", "12"});
  expect_success(resumed + Words{"--devices", "cpu:4", "--split", "p2t2", "--steps", "18"});
  const Words rest{"--steps", "0", "--devices", "1", "--split"};
  if (comm::backends().empty())
    expect_success(resumed + rest + Words{"data"});
  else
    expect_success(Words{"run", "-n", "2", "--", built("bin/lockstep")} + resumed + rest + Words{"p2"});
  EXPECT_EQ(hash_of(run), hash_of(alone));
}

// A part's process reads the file itself where it is the leader's, and is sent the weights where it isn't there.
TEST(TrainContract, PartsBeginWithTheWeightsOfAFile) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  const TemporaryFolder folder;
  const Words recipe{"train",    "mlp",        "--data", "synthetic:1x8x8:4:64", "--batch",    "16",
                     "--epochs", "1",          "--set",  "hidden=16,16,16",      "--replicas", "4",
                     "--quiet",  "--momentum", "0.9",    "--no-curves"};
  expect_success(recipe + Words{"--devices", "1", "--seed", "7", "--out", folder.file("first")});
  const Words begun = recipe + Words{"--devices", "1", "--init"};
  expect_success(begun + Words{folder.file("first/last.pt"), "--out", folder.file("alone")});
  const Words places{folder.file("first/last.pt"), folder.file("first/weights.pt"), "first/weights.pt"};
  for (const std::string& place : places) {
    const std::string run = folder.file("run-" + std::to_string(place.size()));
    std::string command = "[ $RANK = 0 ] && cd " + folder.path().string() + "; exec " + built("bin/lockstep");
    for (const auto& word : begun + Words{place, "--split", "p2", "--out", run}) command += " " + word;
    expect_success({"run", "-n", "2", "--", "sh", "-c", command});
    EXPECT_EQ(hash_of(run), hash_of(folder.file("alone"))) << place;
  }
}

// A small recipe that needs no package.
TEST(Train, ASignalEndsTheStepAndTheRunGoesOnLater) {
  const TemporaryFolder folder;
  const Words words{"train",      "mlp", "--data", "synthetic:1x8x8:4:20000", "--batch",      "16",
                    "--epochs",   "40",  "--out",  folder.file("run"),        "--save-every", "50",
                    "--no-curves"};
  Program program(words);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.file("run/last.pt")); }));
  program.send(SIGINT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("stopped; go on with: lockstep train --resume " + folder.file("run")));
  const Ended resumed = run_program({"train", "--resume", folder.file("run"), "--epochs", "1", "--quiet"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("going on after step"));
}

TEST(Train, ProcessesWithTwoSignalsEndByOneOfThem) {
  if (comm::backends().empty()) GTEST_SKIP() << "this build has no backend that joins processes";
  const TemporaryFolder folder;
  // Each says who it is; both hear of their signals before a step ends.
  const std::string script =
      "echo $$ > " + folder.file("$RANK") + "; exec " + built("bin/lockstep") +
      " train mlp --data synthetic:1x28x28:10:20000 --batch 10000 --epochs 1000 --save-every 1 --evaluate-every 0"
      " --no-curves --quiet --out " +
      folder.file("run");
  Program program(run_script({"-n", "2", "--no-prefix"}, script));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.file("run/last.pt")); }));
  for (const auto& [rank, number] : {std::pair("0", SIGINT), {"1", SIGTERM}}) {
    pid_t process = 0;
    std::ifstream(folder.file(rank)) >> process;
    kill(process, number);
  }
  EXPECT_THAT(program.wait().exit_code, ::testing::AnyOf(128 + SIGINT, 128 + SIGTERM));
}

TEST(Train, GoesOnWhereNobodyReadsItsOutput) {
  const TemporaryFolder folder;
  Program program(small() + Words{"--out", folder.file("run")});
  program.stop_reading();
  EXPECT_EQ(program.wait().exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.file("run/weights.pt")));
}

TEST(Train, AFolderThatAnotherTrainingHasMadeIsNotTaken) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("runs/mlp"));
  const auto train = [&](const std::string& more) {
    const std::string script = "cd " + folder.path().string() + " && exec " + built("bin/lockstep") +
                               " train mlp --data synthetic:1x8x8:4:400 --batch 32 --epochs 1 --no-curves" + more;
    return run_program({"-c", script}, {.program = "/bin/sh"});
  };
  EXPECT_EQ(train(" --replicas 1000").exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder.file("runs/mlp-2")));  // that it had made goes with it
  const Ended ended = train("");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("runs/mlp")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("runs/mlp-2/weights.pt")));
}

TEST(Train, AStartThatIsSaidAgainGoesOn) {
  const TemporaryFolder folder;
  const Words words = small() + Words{"--out",          folder.file("run"),
                                      "--resume",       "--augment",
                                      "flip,normalize", "--scale-batch",
                                      "--scale-lr",     "linear",
                                      "--devices",      "2",
                                      "--log-every",    "3",
                                      "--momentum",     "0"};
  expect_success(words);
  const Ended again = run_program(words);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("going on after step"));
}

TEST(Train, AFileOfOptionsAndTheCommandLineGiveTheConfigurationBesideTheResults) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("options.toml")) << "lr = 0.5\nbatch = 64\nmomentum = 0.5\n";
  expect_success(small() + Words{"--config", folder.file("options.toml"), "--momentum", "0.9", "--out",
                                 folder.file("a"), "--seed", "3"});
  std::ifstream file(folder.file("a/config.toml"));
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(written, AllOf(HasSubstr("lr = 0.5\n"), HasSubstr("batch = 32\n"), HasSubstr("momentum = 0.9\n"),
                             HasSubstr("seed = 3\n"), HasSubstr("replicas = 8\n")));
  expect_success({"train", "--config", folder.file("a/config.toml"), "--out", folder.file("b")});
  EXPECT_EQ(hash_of(folder.file("a")), hash_of(folder.file("b")));
}

TEST(Train, AnInterruptedRunIsResumedWhereThereIsOneAndBegunWhereThereIsNone) {
  const TemporaryFolder folder;
  const Words words = small() + Words{"--out", folder.file("run"), "--resume"};
  expect_success(words);
  const std::string hash = hash_of(folder.file("run"));
  const Ended again = run_program(words);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("going on after step"));
  EXPECT_EQ(hash_of(folder.file("run")), hash);
}

// All files of a folder, with the times of their last changes.
std::map<std::string, std::filesystem::file_time_type> state_of(const std::string& folder) {
  std::map<std::string, std::filesystem::file_time_type> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    out[entry.path().string()] = entry.last_write_time();
  return out;
}

TEST(Train, NoMistakeCostsARun) {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), empty = folder.file("empty");
  std::filesystem::create_directory(empty);
  expect_success(small() + Words{"--out", run});
  const auto before = state_of(run);
  const auto refuse = [&](const Words& words, const std::string& message) {
    const Ended ended = run_program(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.out << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(message));
    EXPECT_EQ(state_of(run), before) << message;
  };
  const Words again = small() + Words{"--out", run, "--overwrite"};
  refuse(again + Words{"--workers", "100000"}, "workers is 100000");
  refuse(again + Words{"--augment", "turn"}, "turn");
  refuse(again + Words{"--nesterov"}, "nesterov");
  refuse(again + Words{"--optimizer", "adam", "--beta1", "1"}, "beta1 is 1");
  refuse({"train", "mlp", "--data", "no-such-data", "--out", run, "--overwrite"}, "no-such-data");
  refuse(
      {"train", "mlp", "--data", "synthetic:1x8x8:4:400", "--init", run + "/weights.pt", "--out", run, "--overwrite"},
      "run/weights.pt' do not fit");
  refuse(again + Words{"--resume"}, "expected one of them");
  refuse(small() + Words{"--out", run, "--resume", empty}, "name two folders");
  refuse(small() + Words{"--resume", empty}, "holds no checkpoint");
  EXPECT_TRUE(state_of(empty).empty());
  std::filesystem::rename(run + "/last.pt", folder.file("last.pt"));
  std::filesystem::remove(run + "/previous.pt");
  const auto weights_only = state_of(run);
  const Ended ended = run_program(small() + Words{"--out", run, "--resume"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("holds no checkpoint to go on with"));
  EXPECT_EQ(state_of(run), weights_only);
  std::ofstream(run + "/report.html") << "of the run before";
  expect_success(again + Words{"--seed", "2"});
  EXPECT_TRUE(std::filesystem::exists(run + "/last.pt"));
  EXPECT_FALSE(std::filesystem::exists(run + "/report.html"));
}

// Each mistake: exit code 2 and one line that says it.
TEST(Train, MistakesAreOneLineAndExitCode2) {
  const TemporaryFolder folder;
  expect_success(small() + Words{"--out", folder.file("run")});
  const std::string elsewhere = folder.file("new");
  const auto refuse = [&](const Words& words, const std::string& message) {
    const Ended ended = run_program(words + Words{"--out", elsewhere});
    EXPECT_EQ(ended.exit_code, 2) << ended.out << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr(message), ::testing::StartsWith("lockstep: ")));
    EXPECT_EQ(lines_of(ended.err).size(), 1u) << ended.err;
  };
  refuse({"train", "lennet"}, "did you mean 'lenet'?");
  refuse({"train", "mlp", "--momentun", "0.9"}, "unknown option '--momentun' (did you mean '--momentum'?)");
  refuse({"train", "mlp", "--optimizer", "sdg"}, "did you mean 'sgd'?");
  refuse({"train", "mlp", "--data", "no-such-data"}, "no-such-data");
  refuse(small() + Words{"--replicas", "1000"}, "400 examples for 1000 replicas");
  refuse({"train", "mlp", "--data", "synthetic:1x8x8:4:400", "--batch", "4", "--replicas", "8"},
         "batch is 4, less than the 8 replicas");
  refuse(small() + Words{"--devices", "cuda:97"}, "cuda");
  refuse(small() + Words{"--preset", "bset"}, "did you mean 'best'?");
  refuse(small() + Words{"--seed", "-1"}, "is -1, expected a whole number, 0 or more");
  refuse(small() + Words{"--config", folder.path()}, "is a folder, expected a file of options");
  refuse(small() + Words{"--lr", "0"}, "lr is 0, expected it above 0");
  refuse(small() + Words{"--lr", "1e30"}, "lr is 1e+30, expected 0 to 1e+18");
  refuse(small() + Words{"--weight-decay", "-0.5"}, "weight-decay is -0.5, expected 0 or more");
  const Ended taken = run_program(small() + Words{"--out", folder.file("run")});
  EXPECT_EQ(taken.exit_code, 2);
  EXPECT_THAT(taken.err, HasSubstr("holds a run already"));
  const Ended other = run_program({"train", "lenet", "--resume", folder.file("run")});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("model is \"lenet\" here and \"mlp\" there"));
  const Ended weights = run_program({"train", "lenet", "--data", "synthetic:1x28x28:10:100", "--batch", "16", "--init",
                                     folder.file("run/weights.pt"), "--out", elsewhere});
  EXPECT_EQ(weights.exit_code, 2) << weights.err;
  EXPECT_THAT(weights.err, HasSubstr("missing"));
}

TEST(Train, ALossThatIsNoNumberIsExitCode1WithStepAndReplica) {
  const TemporaryFolder folder;
  const Ended ended = run_program(small() + Words{"--lr", "1e18", "--weight-decay", "1", "--out", folder.file("run")});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(lines_of(ended.err).back(), MatchesRegex("lockstep: train: the loss is -?(nan|inf) at step [0-9]+ .*"));
}

TEST(Train, AFullDiskIsExitCode1AndOneLine) {
  const TemporaryFolder folder;
  const test::FullDisk disk(6000);
  const Ended ended = run_program(small() + Words{"--out", folder.path(), "--quiet"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("last.pt' can't be written"), HasSubstr("File too large")));
  EXPECT_EQ(lines_of(ended.err).size(), 1u) << ended.err;
}

}  // namespace
}  // namespace lockstep::cli
