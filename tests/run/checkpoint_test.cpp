// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/checkpoint.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scalar_tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "lockstep/base/log.h"
#include "lockstep/run/weights.h"
#include "support/full_disk.h"
#include "support/temporary_folder.h"

namespace lockstep::run {
namespace {

using test::FullDisk;
using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Checkpoint sample(int64_t step, int64_t numel = 1000) {
  Checkpoint out;
  out.model = "lenet";
  out.weights = {{"a", at::full({numel}, static_cast<double>(step), at::kFloat)}, {"b", at::arange(3)}};
  out.buffers = {{"norm.running_mean", at::rand({8, 3})}};
  out.optimizer = {{"a.momentum_buffer", at::rand({numel})}, {"steps", at::scalar_tensor(step, at::kLong)}};
  out.cursor = {2, 17, step};
  out.seed = ~uint64_t{0};
  out.replicas = 8;
  out.config = "model = \"lenet\"\n";
  out.fingerprint = {{"lockstep", "0.1.0"}, {"isa", "avx2"}};
  out.data = {.name = "things",
              .size = 7,
              .input_shape = {1},
              .target_shape = {},
              .classes = 2,
              .class_names = {"plate", "pyramid"},
              .voxel = 0.05,
              .whole_clouds = true,
              .mesh_points = 300};
  out.extra = {{"seconds", {1.5}}};
  return out;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

TEST(Checkpoint, GivesBackAllThatItHolds) {
  const TemporaryFolder folder;
  const Checkpoint saved = sample(40);
  save_checkpoint(folder.file("last.pt"), saved);
  const Checkpoint read = load_checkpoint(folder.file("last.pt"));
  expect_equal(read.weights, saved.weights);
  expect_equal(read.buffers, saved.buffers);
  expect_equal(read.optimizer, saved.optimizer);
  EXPECT_EQ(read.cursor, saved.cursor);
  EXPECT_EQ(read.seed, saved.seed);
  EXPECT_EQ(read.replicas, 8);
  EXPECT_EQ(read.model, "lenet");
  EXPECT_EQ(read.config, saved.config);
  EXPECT_EQ(read.fingerprint, saved.fingerprint);
  EXPECT_EQ(read.data, saved.data);
  EXPECT_EQ(archive::Value{read.extra}.at("seconds").as<double>("seconds"), 1.5);
}

TEST(Checkpoint, OfAnOlderVersionDoesNotSayWhatItWasTrainedOn) {
  const TemporaryFolder folder;
  Checkpoint older = sample(40);
  older.data.reset();
  save_checkpoint(folder.file("last.pt"), older);
  EXPECT_EQ(load_checkpoint(folder.file("last.pt")).data, std::nullopt);
}

TEST(Checkpoint, HashesAsItsWeightsAlone) {
  const TemporaryFolder folder;
  save_checkpoint(folder.file("last.pt"), sample(40));
  write_weights(folder.file("weights.pt"), sample(40).weights);
  EXPECT_EQ(hash_of(read_weights(folder.file("last.pt"))), hash_of(read_weights(folder.file("weights.pt"))));
  EXPECT_EQ(hash_of(read_weights(folder.path())), hash_of(sample(40).weights));
}

TEST(Checkpoint, TheOneBeforeIsKeptAndFoundWhereTheLastIsDamaged) {
  const TemporaryFolder folder;
  EXPECT_FALSE(find_checkpoint(folder.path()));
  save_checkpoint(folder.file("last.pt"), sample(10));
  save_checkpoint(folder.file("last.pt"), sample(20));
  EXPECT_EQ(find_checkpoint(folder.path())->file.filename(), "last.pt");
  std::filesystem::resize_file(folder.file("last.pt"), 3000);
  std::string warnings;
  const ScopedLogSink sink([&](LogLevel, std::string_view line) { warnings += line; });
  const auto found = find_checkpoint(folder.path());
  EXPECT_EQ(found->file.filename(), "previous.pt");
  EXPECT_EQ(found->checkpoint.cursor.step, 10);
  EXPECT_THAT(warnings, HasSubstr("last.pt' is cut short or damaged"));
  std::filesystem::resize_file(folder.file("previous.pt"), 0);
  EXPECT_THAT([&] { find_checkpoint(folder.path()); }, ThrowsMessage<archive::DamagedFile>(HasSubstr("last.pt")));
}

TEST(Checkpoint, AStateDictIsNone) {
  const TemporaryFolder folder;
  write_weights(folder.file("weights.pt"), sample(1).weights);
  EXPECT_THAT(
      [&] { load_checkpoint(folder.file("weights.pt")); },
      ThrowsMessage<Error>(HasSubstr("expected a checkpoint of lockstep train (weights alone go with --init)")));
}

TEST(Checkpoint, KilledAtAnyMomentThereIsAWholeOne) {
  at::set_num_threads(1);  // a forked child has no pool of threads
  const TemporaryFolder folder;
  for (int trial = 0; trial < 20; ++trial) {
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t step = 1;; ++step) save_checkpoint(folder.file("last.pt"), sample(step, 200'000));
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 3 * trial));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (trial > 5 || std::filesystem::exists(folder.file("last.pt"))) {
      const Checkpoint read = load_checkpoint(folder.file("last.pt"));
      EXPECT_EQ(read.weights.at("a")[0].item<float>(), static_cast<float>(read.cursor.step));
    }
  }
}

TEST(CheckpointWriter, WritesTheNewestWhileOthersGoOn) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.file("last.pt"));
  for (int64_t step = 1; step <= 5; ++step) writer.save(sample(step));
  writer.finish();
  EXPECT_FALSE(writer.failed());
  EXPECT_EQ(load_checkpoint(folder.file("last.pt")).cursor.step, 5);
}

TEST(CheckpointWriter, AFullDiskComesOutAtTheNextSaveOrTheEnd) {
  const TemporaryFolder folder;
  const FullDisk disk(100);
  CheckpointWriter writer(folder.file("last.pt"));
  writer.save(sample(1));
  EXPECT_THAT([&] { writer.finish(); }, ThrowsMessage<Error>(HasSubstr("last.pt' can't be written")));
  EXPECT_TRUE(writer.failed());
}

}  // namespace
}  // namespace lockstep::run
