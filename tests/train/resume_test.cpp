// SPDX-License-Identifier: Apache-2.0
// What a run tells of itself when it was interrupted and went on.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/run/run_files.h"
#include "lockstep/run/weights.h"
#include "lockstep/train/trainer.h"
#include "support/temporary_folder.h"
#include "support/threads.h"

namespace lockstep::train {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

struct NetImpl : torch::nn::Module {
  NetImpl() { fc = register_module("fc", torch::nn::Linear(64, 4)); }
  at::Tensor forward(const at::Tensor& x) { return fc(x.flatten(1)); }
  torch::nn::Linear fc{nullptr};
};

// Six steps an epoch.
Task task() {
  return {.model = "net",
          .network = [] { return models::Classifier::of(std::make_shared<NetImpl>()); },
          .train = data::open_dataset("synthetic:1x8x8:4:103", data::Subset::train),
          .test = data::open_dataset("synthetic:1x8x8:4:51", data::Subset::test)};
}

run::Config config(const std::string& out) {
  run::Config config{.batch = 20, .replicas = 4, .epochs = 3, .lr = 0.05, .schedule = "cosine"};
  config.out = out;
  config.log_every = 100;  // at the end of an epoch alone
  config.devices = "cpu:2";
  config.curves = config.tensorboard = false;
  config.quiet = true;
  return config;
}

// Ends one step after `stop_after`, with which the others hear of it.
Outcome train(const run::Config& config, int stop_after = 0, Task what = task()) {
  Trainer trainer(config, std::move(what));
  trainer.on_step([&](const StepReport& step, const models::Classifier&) {
    if (step.cursor.step == stop_after) Trainer::request_stop(SIGINT);
  });
  return trainer.run();
}

run::Summary summary_of(const run::Config& config) {
  return run::read_summary(run::Folder{config.out}.summary());
}

std::vector<run::Metrics> lines_of(const run::Config& config, data::Subset subset) {
  auto lines = run::read_metrics(run::Folder{config.out}.metrics());
  std::erase_if(lines, [&](const auto& line) { return line.subset != subset; });
  return lines;
}

TEST(Resume, AnInterruptedRunSaysHowFarItCame) {
  const TemporaryFolder folder;
  const run::Config run = config(folder.file("run"));
  train(run, 8);
  const auto summary = summary_of(run);
  EXPECT_EQ(summary.state, "interrupted");
  EXPECT_EQ(summary.steps, 9);
  EXPECT_EQ(summary.epochs, 1.5);
  EXPECT_EQ(summary.hash, run::hash_of(run::read_weights(folder.file("run/last.pt"))));
}

TEST(Resume, AProcessThatDoesNotSeeTheFileIsSentIt) {
  bool is_allowed = false;
  test::run_threads(1, [&](int) { is_allowed = unshare(CLONE_FS) == 0; });
  if (!is_allowed) GTEST_SKIP() << "the system refuses a thread a working folder of its own";
  const TemporaryFolder folder;
  train(config(folder.file("run")), 4);
  const std::string hash = run::hash_of(run::load_checkpoint(folder.file("run/last.pt")).weights);
  const auto groups = comm::local_groups(3);
  train(config(folder.file("another/run")), 2);
  test::run_threads(3, [&](int rank) {
    ASSERT_EQ(unshare(CLONE_FS), 0);
    const std::string here[] = {folder.path(), folder.file("another"), "/"};
    ASSERT_EQ(chdir(here[rank].c_str()), 0);
    const auto found = fetch_checkpoint("run", groups[rank]);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->cursor.step, 5);
    EXPECT_EQ(run::hash_of(found->weights), hash);
  });
}

TEST(Resume, ARecipeThatHasChangedOnceStaysUnknown) {
  const TemporaryFolder folder;
  run::Config run = config(folder.file("run"));
  run.epochs = 1;
  train(run);
  EXPECT_NE(summary_of(run).recipe, "");
  run.epochs = 2;  // its rate followed one epoch's cosine at first
  run.resume = run.out;
  for (int resume = 0; resume < 2; ++resume) {
    train(run);
    EXPECT_EQ(summary_of(run).recipe, "") << resume;
  }
}

TEST(Resume, AFinishedRunTellsTheSameAsOftenAsItIsResumed) {
  const TemporaryFolder folder;
  run::Config run = config(folder.file("run"));
  train(run);
  const auto before = summary_of(run);
  const auto lines = run::read_metrics(run::Folder{run.out}.metrics());
  run.resume = run.out;
  for (int resume = 0; resume < 2; ++resume) {
    train(run);
    const auto after = summary_of(run);
    EXPECT_EQ(after.steps, 18);
    EXPECT_EQ(after.epochs, 3);
    EXPECT_EQ(after.train_loss, before.train_loss);
    EXPECT_EQ(after.test_loss, before.test_loss);
    EXPECT_EQ(after.examples_per_second, before.examples_per_second);
    EXPECT_EQ(run::read_metrics(run::Folder{run.out}.metrics()), lines);
  }
}

TEST(Resume, AnEpochThatASignalEndedIsEvaluatedLater) {
  const TemporaryFolder folder;
  const run::Config whole = config(folder.file("whole"));
  train(whole);
  run::Config run = config(folder.file("run"));
  EXPECT_EQ(train(run, 5).cursor, (run::TrainingCursor{1, 0, 6}));
  EXPECT_TRUE(lines_of(run, data::Subset::test).empty());
  run.resume = run.out;
  EXPECT_EQ(train(run).signal, 0);
  const auto tests = lines_of(run, data::Subset::test), expected = lines_of(whole, data::Subset::test);
  ASSERT_EQ(tests.size(), 3u);
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(tests[epoch].step, expected[epoch].step);
    EXPECT_EQ(tests[epoch].epoch, expected[epoch].epoch);
    EXPECT_EQ(tests[epoch].loss, expected[epoch].loss);
  }
}

TEST(Resume, APaceCountsTheTimeBeforeTheStop) {
  const TemporaryFolder folder;
  run::Config run = config(folder.file("run"));
  train(run, 8);
  const double elapsed = archive::Value{run::load_checkpoint(folder.file("run/last.pt")).extra}
                             .at("line_seconds")
                             .as<double>("line_seconds");
  EXPECT_GT(elapsed, 0);
  run.resume = run.out;
  train(run);
  const auto lines = lines_of(run, data::Subset::train);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_GT(103 / *lines[1].examples_per_second, elapsed);  // the epoch's examples, of before the stop and after
}

TEST(Resume, CurvesShowTheEnd) {
  const TemporaryFolder folder;
  run::Config run = config(folder.file("run"));
  run.curves = true;
  Trainer trainer(run, task());
  const run::Folder files{run.out};
  trainer.on_epoch([&](const EpochReport&) { std::filesystem::remove(files.curves_svg()); });
  trainer.run();
  EXPECT_TRUE(std::filesystem::exists(files.curves_svg()));
}

TEST(Resume, DataIsCheckedFromTheNextEpochOnWhereItWasNotBefore) {
  const TemporaryFolder folder;
  run::Config run = config(folder.file("run"));
  train(run, 2);
  run.resume = run.out;
  run.check_data = true;
  EXPECT_EQ(train(run, 4).signal, SIGINT);  // again within the epoch
  EXPECT_EQ(train(run).cursor.step, 18);
}

TEST(CheckData, LetsATailGoWhereThatWasSaid) {
  const TemporaryFolder folder;
  run::Config run = config("");
  run.tail = "drop_last";
  run.check_data = true;
  EXPECT_EQ(train(run).cursor.step, 15);
}

TEST(Resume, OptionsOfTheFormerStartHoldUnlessOthersAreGiven) {
  run::Checkpoint checkpoint;
  run::Config before = config("there");
  before.batch_norm = "sync";
  before.check_data = true;
  before.cache = "clouds";
  checkpoint.config = run::to_toml(before);
  run::Config now;
  now.out = "here";
  now.devices = "cpu:3";
  now.log_every = 7;
  const run::Config resumed = resumed_config(now, {"log-every"}, checkpoint);
  EXPECT_TRUE(resumed.check_data);
  EXPECT_TRUE(resumed.quiet);
  EXPECT_FALSE(resumed.tensorboard);
  EXPECT_EQ(resumed.cache, "clouds");
  EXPECT_EQ(resumed.log_every, 7);
  EXPECT_EQ(resumed.out, "here");
  EXPECT_EQ(resumed.devices, "cpu:3");
}

TEST(Resume, TheSameWordsMeanTheSameRecipe) {
  const TemporaryFolder folder;
  run::Config typed = config(folder.file("run"));
  typed.augment = "flip,normalize";
  typed.scale_batch = true;
  typed.scale_lr = "linear";
  typed.epochs = 1;
  train(typed);
  const auto checkpoint = run::load_checkpoint(folder.file("run/last.pt"));
  const std::vector<std::string> given{"augment", "batch", "lr", "scale-batch", "scale-lr", "momentum"};
  const run::Config resumed = resumed_config(typed, given, checkpoint);
  EXPECT_EQ(resumed.batch, 40);
  EXPECT_FALSE(resumed.scale_batch);
  run::Config other = typed;
  other.augment = "flip:0.25,normalize";
  EXPECT_THAT([&] { resumed_config(other, given, checkpoint); }, ThrowsMessage<Error>(HasSubstr("augment is \"flip:")));
  other = typed;
  other.scale_lr = "linaer";
  EXPECT_THAT([&] { resumed_config(other, given, checkpoint); },
              ThrowsMessage<Error>(HasSubstr("scale-lr is \"linaer\" here")));
  other = typed;
  other.scale_batch = false;
  EXPECT_THAT([&] { resumed_config(other, given, checkpoint); },
              ThrowsMessage<Error>(AllOf(HasSubstr("batch is 20 here and 40 there"), Not(HasSubstr("lr is")))));
}

// Twenty examples, and after each `gap` that nobody has labelled.
std::shared_ptr<const data::Dataset> sparsely_labelled(int64_t gap) {
  const auto inputs = at::arange(20 * 64, at::kFloat).sin().view({20, 1, 1, 8, 8});
  const auto labels = at::arange(20).remainder(4).view({20, 1});
  const auto more = at::rand({20, gap, 1, 8, 8});
  return data::make_dataset("sparse", at::cat({inputs, more}, 1).flatten(0, 1),
                            at::cat({labels, at::full({20, gap}, data::kIgnore)}, 1).flatten(), 4);
}

TEST(Unlabelled, ExamplesHaveNoWeight) {
  std::vector<double> losses;
  for (const int64_t gap : {0, 1}) {
    run::Config run = config("");
    run.batch = 20 * (gap + 1);
    run.order = "sequential";
    run.epochs = 2;
    Task what = task();
    what.train = sparsely_labelled(gap);
    what.test = nullptr;
    const Outcome outcome = train(run, 0, what);
    EXPECT_EQ(outcome.last.examples, 20);
    losses.push_back(outcome.last.train_loss);
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-6);
}

TEST(Unlabelled, WholeBatchesAreNoMistake) {
  run::Config run = config("");
  run.batch = run.replicas = 1;
  run.order = "sequential";
  run.epochs = 1;
  Task what = task();
  what.train = sparsely_labelled(1);
  what.test = nullptr;
  const Outcome outcome = train(run, 0, what);
  EXPECT_EQ(outcome.cursor.step, 40);
  EXPECT_EQ(outcome.last.examples, 20);
}

TEST(Unlabelled, ExamplesAreNotShown) {
  const TemporaryFolder folder;
  const run::Config run = config(folder.file("run"));
  Task what = task();
  what.test = sparsely_labelled(1);
  train(run, 0, what);
  EXPECT_EQ(run::read_samples(run::Folder{run.out}.samples()).samples.size(), 12u);
  EXPECT_TRUE(std::filesystem::exists(folder.file("run/weights.pt")));
}

TEST(Evaluate, DoesNotCareHowTrainingCutItsBatches) {
  const TemporaryFolder folder;
  run::Config run = config(folder.file("run"));
  run.epochs = 1;
  const Outcome outcome = train(run);
  run::Config other = config("");
  other.tail = "drop_last";
  other.batch = 1000;
  other.accumulate = 3;
  other.blocks = {8};  // of a job that had other replicas
  for (const int64_t replicas : {0, 8, 60}) {
    other.replicas = replicas;
    const Evaluation found = evaluate(other, task(), outcome.weights, comm::Group());
    EXPECT_EQ(found.examples, 51);
    EXPECT_NEAR(found.loss, outcome.last.test->loss, 1e-6);
  }
}

}  // namespace
}  // namespace lockstep::train
