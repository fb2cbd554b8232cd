// SPDX-License-Identifier: Apache-2.0
// The trainer as a program of one's own uses it: any placement and any interruption end in the same bits.
#include "lockstep/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/run/run_files.h"
#include "lockstep/run/weights.h"
#include "support/full_disk.h"
#include "support/temporary_folder.h"

namespace lockstep::train {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Dropout, batch norms and a convolution: all that could follow the placement.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    drop = register_module("drop", torch::nn::Dropout(0.2));
    fc = register_module("fc", torch::nn::Linear(4 * 36, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return fc(drop(torch::relu(norm(conv(x))).flatten(1))); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::Linear fc{nullptr};
};

Task task() {
  return {.model = "net",
          .network = [] { return models::Classifier::of(std::make_shared<NetImpl>()); },
          .train = data::open_dataset("synthetic:1x8x8:4:103", data::Subset::train),
          .test = data::open_dataset("synthetic:1x8x8:4:51", data::Subset::test)};
}

// 103 examples in batches of 20: six steps an epoch, the last with 3 examples for 8 replicas.
run::Config config() {
  run::Config out;
  out.augment = "shift:1,flip,normalize";
  out.batch = 20;
  out.replicas = 8;
  out.epochs = 3;
  out.lr = 0.05;
  out.momentum = 0.9;
  out.schedule = "cosine";
  out.warmup = 1;
  out.quiet = true;
  out.devices = "cpu:2";
  out.curves = false;
  return out;
}

Outcome train(const run::Config& config, int stop_after = 0) {
  Trainer trainer(config, task());
  if (stop_after > 0)
    trainer.on_step([&](const StepReport& step, const models::Classifier&) {
      if (step.cursor.step == stop_after) Trainer::request_stop(SIGINT);
    });
  return trainer.run();
}

TEST(Trainer, GivesTheSameBitsOnAnyNumberOfThreads) {
  for (const char* norm : {"sync", "ghost", "local"}) {
    run::Config recipe = config();
    recipe.batch_norm = norm;
    recipe.clip = 1;
    const Outcome two = train(recipe);
    EXPECT_EQ(two.cursor, (run::TrainingCursor{3, 0, 18}));
    for (const char* devices : {"cpu:1", "cpu:8"}) {
      recipe.devices = devices;
      const Outcome other = train(recipe);
      EXPECT_EQ(other.hash, two.hash) << norm << " on " << devices;
      EXPECT_EQ(other.last.train_loss, two.last.train_loss);
      EXPECT_EQ(other.last.test->loss, two.last.test->loss);
      EXPECT_EQ(other.last.test->examples, 51);
    }
  }
}

// Evaluations take nearly all of this run, in which eight replicas wait for each other's turns.
TEST(Trainer, AnEvaluationIsNoPartOfTheStepsTime) {
  Task mostly_evaluated = task();
  mostly_evaluated.test = data::open_dataset("synthetic:1x8x8:4:200000", data::Subset::test);
  run::Config wanted = config();
  wanted.devices = "cpu:1";
  Trainer trainer(wanted, mostly_evaluated);
  double in_steps = 0;
  trainer.on_step([&](const StepReport& step, const models::Classifier&) { in_steps += step.phases.sum(); });
  const auto began = std::chrono::steady_clock::now();
  trainer.run();
  const double in_all = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  EXPECT_GT(in_steps, 0);
  EXPECT_LT(in_steps, in_all / 2) << in_steps << " of " << in_all;
}

TEST(Trainer, LearnsWhatCanBeLearnt) {
  run::Config recipe = config();
  recipe.epochs = 40;
  recipe.augment = "normalize";
  const Outcome outcome = train(recipe);
  EXPECT_GT(outcome.last.train_accuracy, 0.6);
  EXPECT_GT(outcome.last.test->accuracy, 0.6);
}

class Interrupted : public ::testing::TestWithParam<int> {};

TEST_P(Interrupted, AResumedRunGoesOnToTheSameBitsOnAnotherPlacement) {
  for (const char* norm : {"sync", "local"}) {
    const TemporaryFolder folder;
    run::Config recipe = config();
    recipe.batch_norm = norm;
    recipe.accumulate = GetParam() == 3 ? 2 : 1;
    recipe.check_data = true;
    const Outcome whole = train(recipe);
    recipe.out = folder.file("run");
    const Outcome part = train(recipe, GetParam());
    EXPECT_EQ(part.signal, SIGINT);
    // Told along with the step after, or with the evaluation where an epoch ends in between.
    EXPECT_EQ(part.cursor.step, recipe.accumulate == 2 ? 3 : GetParam() + 1);
    recipe.resume = recipe.out;
    recipe.devices = "cpu:3";
    const Outcome rest = train(recipe);
    EXPECT_EQ(rest.signal, 0);
    EXPECT_EQ(rest.cursor, whole.cursor) << rest.cursor.step;
    EXPECT_EQ(rest.hash, whole.hash) << norm;
    EXPECT_EQ(rest.last.train_loss, whole.last.train_loss);
    EXPECT_EQ(run::hash_of(run::read_weights(folder.file("run/weights.pt"))), whole.hash);
    EXPECT_EQ(run::hash_of(run::read_weights(folder.file("run/last.pt"))), whole.hash);
    const Outcome again = train(recipe);  // nothing is left to do
    EXPECT_EQ(again.hash, whole.hash);
    EXPECT_EQ(again.last.test->loss, whole.last.test->loss);
  }
}
INSTANTIATE_TEST_SUITE_P(AfterStep, Interrupted, ::testing::Values(3, 5, 8));

TEST(Trainer, WritesTheFilesOfARun) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  recipe.out = folder.file("run");
  recipe.curves = true;
  recipe.log_every = 2;
  const Outcome outcome = train(recipe);
  const run::Folder run{recipe.out};
  const auto metrics = run::read_metrics(run.metrics());
  ASSERT_FALSE(metrics.empty());
  int64_t tests = 0, step = 0;
  for (const auto& line : metrics) {
    EXPECT_GE(*line.step, step);
    step = *line.step;
    tests += line.subset == data::Subset::test;
  }
  EXPECT_EQ(step, 18);
  EXPECT_EQ(tests, 3);
  const auto summary = run::read_summary(run.summary());
  EXPECT_EQ(summary.state, "finished");
  EXPECT_EQ(summary.hash, outcome.hash);
  EXPECT_EQ(summary.test_loss, outcome.last.test->loss);
  EXPECT_EQ(run::read_samples(run.samples()).samples.size(), 24u);
  const auto confusion = run::read_confusion(run.confusion());
  int64_t counted = 0;
  for (const auto& row : confusion.counts)
    for (const int64_t count : row) counted += count;
  EXPECT_EQ(counted, 51);
  run::Config read;
  run::read_toml_file(read, run.config().string());
  EXPECT_EQ(read.replicas, 8);
  EXPECT_EQ(read.augment.substr(0, 23), "shift:1,flip:0.5,normal");
  EXPECT_TRUE(std::filesystem::exists(run.curves_svg()));
  EXPECT_FALSE(std::filesystem::is_empty(run.tensorboard()));
}

// A network whose loss is no number from some step on, on one replica.
struct BrokenImpl : torch::nn::Module {
  BrokenImpl() { fc = register_module("fc", torch::nn::Linear(64, 4)); }
  at::Tensor forward(const at::Tensor& x) {
    auto y = fc(x.flatten(1));
    return y * scale;
  }
  torch::nn::Linear fc{nullptr};
  double scale = 1;
};

TEST(Trainer, ALossThatIsNoNumberIsNamedWithStepAndReplicaAndTheCheckpointStays) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  recipe.out = folder.file("run");
  recipe.save_every = 4;
  recipe.momentum = 0;
  Task broken = task();
  broken.network = [] { return models::Classifier::of(std::make_shared<BrokenImpl>()); };
  Trainer trainer(recipe, broken);
  trainer.on_step([](const StepReport& step, const models::Classifier& network) {  // of replica 0
    if (step.cursor.step == 9) network.network()->as<BrokenImpl>()->scale = std::numeric_limits<double>::quiet_NaN();
  });
  EXPECT_THAT([&] { trainer.run(); },
              ThrowsMessage<TrainingError>(AllOf(HasSubstr("the loss is nan at step 10 (epoch 2) on replica 0"),
                                                 HasSubstr("last.pt holds step 8"))));
  EXPECT_EQ(run::load_checkpoint(folder.file("run/last.pt")).cursor.step, 8);
  EXPECT_THAT(run::read_summary(folder.file("run/summary.json")).state, HasSubstr("failed: train: the loss is nan"));
}

TEST(Trainer, AFullDiskEndsTheTrainingWithOneClearMessage) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  recipe.out = folder.path();
  recipe.save_every = 2;
  const test::FullDisk disk(6000);
  EXPECT_THAT([&] { train(recipe); },
              ThrowsMessage<TrainingError>(AllOf(HasSubstr("last.pt' can't be written"), HasSubstr("File too large"))));
}

TEST(Trainer, MistakesAreNamed) {
  const auto refuse = [](auto change, const std::string& message) {
    run::Config wrong = config();
    change(wrong);
    EXPECT_THAT([&] { Trainer(wrong, task()); }, ThrowsMessage<Error>(HasSubstr(message)));
  };
  refuse([](run::Config& c) { c.replicas = 200; }, "103 examples for 200 replicas");
  refuse([](run::Config& c) { c.batch = 5; }, "batch is 5, less than the 8 replicas");
  refuse([](run::Config& c) { c.devices = "cuda:7"; }, "cuda");
  refuse([](run::Config& c) { c.augment = "flop"; }, "flop");
  refuse([](run::Config& c) { c.resume = "/no/such/run.pt"; }, "can't be opened");
}

TEST(Trainer, ARunIsReplacedOnlyWhereSomebodySaysSo) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  recipe.out = folder.file("run");
  recipe.epochs = 1;
  const std::string hash = train(recipe).hash;
  recipe.seed = 5;
  EXPECT_THAT([&] { train(recipe); }, ThrowsMessage<Error>(HasSubstr("holds a run already")));
  EXPECT_EQ(run::hash_of(run::read_weights(folder.file("run/last.pt"))), hash);
  std::filesystem::create_directory(folder.file("empty"));
  recipe.resume = folder.file("empty");
  EXPECT_THAT([&] { train(recipe); }, ThrowsMessage<Error>(HasSubstr("holds no checkpoint")));
  recipe.resume.clear();
  Trainer trainer(recipe, task());
  trainer.overwrite();
  EXPECT_NE(trainer.run().hash, hash);
  EXPECT_FALSE(std::filesystem::exists(folder.file("run/previous.pt")));
}

TEST(Trainer, ACheckpointOfAnotherRecipeIsRefusedWithWhatDiffers) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  recipe.out = folder.file("run");
  recipe.epochs = 1;
  train(recipe);
  recipe.resume = recipe.out;
  recipe.lr = 0.1;
  recipe.replicas = 4;
  EXPECT_THAT([&] { train(recipe); }, ThrowsMessage<Error>(AllOf(HasSubstr("lr is 0.1 here and 0.05 there"),
                                                                 HasSubstr("replicas is 4 here and 8 there"))));
}

TEST(Trainer, WeightsOfAnotherNetworkAreRefusedWithWhatDiffers) {
  const TemporaryFolder folder;
  run::write_weights(folder.file("w.pt"), {{"conv.weight", at::rand({4, 1, 5, 5})}});
  run::Config recipe = config();
  recipe.init = folder.file("w.pt");
  EXPECT_THAT([&] { train(recipe); },
              ThrowsMessage<Error>(AllOf(HasSubstr("w.pt"), HasSubstr("conv.weight"), HasSubstr("fc.bias"))));
}

TEST(Trainer, MixedPrecisionTrainsWithTheSameBitsToo) {
  run::Config recipe = config();
  recipe.amp = "bf16";
  const Outcome two = train(recipe);
  recipe.devices = "cpu:8";
  EXPECT_EQ(train(recipe).hash, two.hash);
  recipe.amp = "none";
  EXPECT_NE(train(recipe).hash, two.hash);
}

TEST(Trainer, TheBatchAndTheRateGrowWithTheDevicesWhereAskedTo) {
  run::Config recipe = config();
  recipe.scale_batch = true;
  recipe.scale_lr = "linear";
  Trainer trainer(recipe, task());
  EXPECT_EQ(trainer.config().batch, 40);
  EXPECT_DOUBLE_EQ(trainer.config().lr, 0.1);
  EXPECT_FALSE(trainer.config().scale_batch);
  EXPECT_THAT(trainer.describe(), HasSubstr("8 replicas on 2 threads, batch 40"));
}

TEST(Trainer, WritesDownTheNumbersThatTheOptimiserUses) {
  run::Config recipe = config();
  EXPECT_EQ(Trainer(recipe, task()).config().weight_decay, 0);
  recipe.optimizer = "adamw";
  recipe.momentum = 0;
  const run::Config settled = Trainer(recipe, task()).config();
  EXPECT_EQ(settled.weight_decay, 1e-2);
  EXPECT_EQ(settled.eps, 1e-8);
  recipe.weight_decay = 0;
  recipe.eps = 1e-3;
  const run::Config given = Trainer(recipe, task()).config();
  EXPECT_EQ(given.weight_decay, 0);
  EXPECT_EQ(given.eps, 1e-3);
  recipe = config();
  recipe.optimizer = "lars";
  recipe.momentum = -1;
  EXPECT_EQ(Trainer(recipe, task()).config().momentum, 0.9);
  recipe.momentum = 0;
  recipe.eps = 0;
  const run::Config zero = Trainer(recipe, task()).config();
  EXPECT_EQ(zero.momentum, 0);
  EXPECT_EQ(zero.eps, 0);
  run::Checkpoint open;  // as older ones are
  open.config = "optimizer = \"adamw\"\nweight-decay = -1\neps = 0\n";
  EXPECT_NO_THROW(resumed_config(settled, {"weight-decay", "eps"}, open));
}

TEST(Trainer, RunsOfOneRecipeAreToldFromOthers) {
  const TemporaryFolder folder;
  int runs = 0;
  const auto recipe_of = [&](run::Config run) {
    run.out = folder.file("run-" + std::to_string(runs++));
    run.log_every = 100;
    train(run);
    return run::read_summary(run::Folder{run.out}.summary()).recipe;
  };
  run::Config recipe = config();
  recipe.epochs = 1;
  const std::string first = recipe_of(recipe);
  EXPECT_EQ(first.size(), 64);
  run::Config elsewhere = recipe;
  elsewhere.devices = "cpu:1";
  elsewhere.workers = 0;
  EXPECT_EQ(recipe_of(elsewhere), first);
  run::Config other = recipe;
  other.seed = 5;
  EXPECT_NE(recipe_of(other), first);
  other = recipe;
  other.reduce = "ring";  // promises nothing
  EXPECT_EQ(recipe_of(other), "");
  run::Config longer = recipe;
  longer.resume = folder.file("run-0");
  EXPECT_EQ(recipe_of(longer), first);
  longer.epochs = 2;  // its rate followed one epoch's cosine at first
  EXPECT_EQ(recipe_of(longer), "");
}

TEST(Trainer, NetworksOfTheRegistryTrainByName) {
  run::Config recipe = config();
  recipe.model = "mlp";
  recipe.data = "synthetic:1x8x8:4:103";
  recipe.set = {};
  Trainer trainer(recipe, make_task(recipe));
  EXPECT_GT(trainer.run().last.train_accuracy, 0.35);  // of four classes
  recipe.model = "mpl";
  EXPECT_THAT([&] { make_task(recipe); }, ThrowsMessage<Error>(HasSubstr("did you mean 'mlp'?")));
}

}  // namespace
}  // namespace lockstep::train
