// SPDX-License-Identifier: Apache-2.0
// Sparse networks on clouds of points, through the same trainer as dense ones on images.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "lockstep/data/cloud.h"
#include "lockstep/models/clouds/minkunet.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/run/run_files.h"
#include "lockstep/train/trainer.h"
#include "support/published_clouds.h"
#include "support/temporary_folder.h"

namespace lockstep::train {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

// Six small rooms in batches of four: the second batch has two clouds for four replicas, so two empty shares.
run::Config config() {
  run::Config out;
  out.model = "stackunet";  // a small one
  out.data = "rooms:6:3";
  out.voxel = 0.3;
  out.augment = "turn,flip,scale:0.1,jitter:0.01,mix:0.5,window:4,drop:0.1,chromatic";
  out.batch = 4;
  out.replicas = 4;
  out.epochs = 2;
  out.lr = 0.02;
  out.momentum = 0.9;
  out.batch_norm = "sync";
  out.quiet = true;
  out.devices = "cpu:2";
  out.curves = false;
  out.check_data = true;
  return out;
}

Outcome train(const run::Config& config) {
  Trainer trainer(config, make_task(config));
  return trainer.run();
}

TEST(CloudTraining, EndsInTheSameBitsOnAnyNumberOfThreads) {
  for (const char* norm : {"sync", "ghost"}) {
    run::Config recipe = config();
    recipe.model = "minkunet14a";
    recipe.batch_norm = norm;
    recipe.epochs = 1;
    const Outcome two = train(recipe);
    EXPECT_EQ(two.cursor, (run::TrainingCursor{1, 0, 2}));
    recipe.devices = norm == std::string("sync") ? "cpu:1" : "cpu:4";
    const Outcome other = train(recipe);
    EXPECT_EQ(other.hash, two.hash) << norm;
    EXPECT_EQ(other.last.train_loss, two.last.train_loss);
    EXPECT_EQ(other.last.test->mean_iou, two.last.test->mean_iou);
  }
}

TEST(CloudTraining, GoesOnElsewhereToTheSameBits) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  const std::string whole = train(recipe).hash;
  recipe.out = folder.file("run");
  recipe.steps = 3;  // in the middle of the second epoch
  train(recipe);
  recipe.steps = 0;
  recipe.resume = recipe.out;
  recipe.devices = "cpu:1";
  EXPECT_EQ(train(recipe).hash, whole);
}

TEST(CloudTraining, CountsVoxelsAndIntersectionsOverUnions) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  recipe.epochs = 1;
  recipe.out = folder.file("run");
  const Outcome outcome = train(recipe);
  const Evaluation& test = *outcome.last.test;
  ASSERT_EQ(test.class_iou.size(), 8);
  double sum = 0;
  int classes = 0;
  for (int64_t c = 0; c < 8; ++c) {
    const double both = test.confusion[c][c].item<double>();
    const double either =
        test.confusion[c].sum().item<double>() + test.confusion.select(1, c).sum().item<double>() - both;
    if (either == 0) {
      EXPECT_TRUE(std::isnan(test.class_iou[c]));
      continue;
    }
    EXPECT_DOUBLE_EQ(test.class_iou[c], both / either);
    sum += both / either;
    ++classes;
  }
  EXPECT_NEAR(*test.mean_iou, sum / classes, 1e-12);
  EXPECT_GT(outcome.last.examples, 6 * 300);
  const auto lines = run::read_metrics(folder.file("run/metrics.jsonl"));
  EXPECT_EQ(lines.back().subset, data::Subset::test);
  EXPECT_NEAR(*lines.back().mean_iou, *test.mean_iou, 1e-12);
  EXPECT_EQ(lines.back().class_iou.size(), 8);
  const run::Summary summary = run::read_summary(folder.file("run/summary.json"));
  EXPECT_NEAR(*summary.test_mean_iou, *test.mean_iou, 1e-12);
  EXPECT_EQ(summary.unit, "voxels");
  for (const auto& events : std::filesystem::directory_iterator(folder.file("run/tb"))) {
    const std::string bytes = read_file(events.path());
    EXPECT_THAT(bytes, HasSubstr("voxels_per_second/train"));
    EXPECT_THAT(bytes, Not(HasSubstr("examples_per_second")));
  }
}

/// All voxels of the small test room, as the last evaluation saw them.
TEST(CloudTraining, LeavesScenesWithWhatTheNetworkMakesOfThem) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  recipe.epochs = 1;
  recipe.out = folder.file("run");
  const Outcome outcome = train(recipe);
  const auto scenes = run::read_scenes(folder.file("run/scenes.json"));
  EXPECT_THAT(scenes.classes, ::testing::Contains("chair"));
  ASSERT_EQ(scenes.scenes.size(), 1);
  int64_t known = 0, right = 0;
  for (const auto& scene : scenes.scenes) {
    EXPECT_EQ(scene.mark, 1);
    EXPECT_EQ(scene.colours.size(), scene.voxels.size());
    for (size_t i = 0; i < scene.labels.size(); ++i) {
      known += scene.labels[i] != run::Scene::kUnknown;
      right += scene.labels[i] == scene.predictions[i];
    }
  }
  EXPECT_NEAR(outcome.last.test->accuracy, static_cast<double>(right) / static_cast<double>(known), 1e-12);
}

TEST(CloudTraining, KeepsAFewThousandVoxelsOfALargeScene) {
  const auto scenes_on = [](const char* devices) {
    const TemporaryFolder folder;
    run::Config recipe = config();
    recipe.data = "rooms:2:6";
    recipe.voxel = 0.08;
    recipe.replicas = recipe.batch = 2;
    recipe.epochs = 1;
    recipe.devices = devices;
    recipe.out = folder.file("run");
    train(recipe);
    return run::read_scenes(folder.file("run/scenes.json"));
  };
  const auto scenes = scenes_on("cpu:1");
  ASSERT_EQ(scenes.scenes.size(), 1);
  EXPECT_EQ(scenes.scenes[0].voxels.size(), 6000);
  EXPECT_GT(scenes.scenes[0].mark, 1);
  EXPECT_EQ(scenes_on("cpu:2"), scenes);
}

/// Loss and accuracy are of voxels, so neither the division nor its sizes matter.
TEST(CloudTraining, EvaluatesTheSameForAnyNumberOfReplicas) {
  run::Config recipe = config();
  recipe.epochs = 1;
  const Outcome outcome = train(recipe);
  recipe.test_examples = 0;
  Task task = make_task(recipe);
  task.test = task.train;
  const auto four = evaluate(recipe, task, outcome.weights, {}, {.confusion = true});
  recipe.replicas = 1;
  recipe.evaluate_batch = 3;
  const auto one = evaluate(recipe, task, outcome.weights, {}, {.confusion = true});
  EXPECT_EQ(one.examples, 6);
  EXPECT_EQ(four.examples, 6);
  EXPECT_NEAR(one.loss, four.loss, 1e-5);
  EXPECT_NEAR(one.accuracy, four.accuracy, 1e-3);
}

/// A point has the answer of its voxel, and counts as often as there are points.
TEST(CloudTraining, CountsPointsWhereTheyAreAskedFor) {
  run::Config recipe = config();
  recipe.epochs = 1;
  recipe.augment = "none";
  const Outcome outcome = train(recipe);
  Task task = make_task(recipe);
  task.test = task.train;
  const auto found = evaluate(recipe, task, outcome.weights, {}, {.confusion = true, .points = true});

  const auto network = task.network();
  models::load_state_dict(*network, outcome.weights);
  network->eval();
  const at::NoGradGuard no_grad;
  const auto expected = at::zeros({8, 8}, at::kLong);
  for (int64_t id = 0; id < task.train->size(); ++id) {
    const data::Cloud cloud = dynamic_cast<const data::CloudDataset&>(*task.train).read_cloud(id);
    const data::Voxels voxels = data::voxelise(cloud, recipe.voxel);
    const auto entries = at::zeros({voxels.coordinates.size(0), 1}, at::kInt);
    const auto best =
        network->forward(sparse::SparseTensor(voxels.features, at::cat({entries, voxels.coordinates}, 1))).argmax(1);
    for (int64_t i = 0; i < cloud.size(); ++i) expected[cloud.labels[i]][best[voxels.voxel_of_point[i]]] += 1;
  }
  EXPECT_TRUE(at::equal(found.confusion, expected)) << found.confusion << expected;
  EXPECT_DOUBLE_EQ(found.accuracy, expected.diagonal().sum().item<double>() / expected.sum().item<double>());
}

TEST(CloudTraining, LearnsTheLargeClassesInAFewSteps) {
  run::Config recipe = config();
  recipe.model = "minkunet14a";
  recipe.augment = "none";
  recipe.epochs = 12;
  recipe.check_data = false;
  recipe.evaluate_every = 0;
  const Outcome outcome = train(recipe);
  EXPECT_GT(outcome.last.train_accuracy, 0.75);
  EXPECT_LT(outcome.last.train_loss, 0.9);
}

TEST(CloudTraining, EndsInTheSameBitsWithACache) {
  const TemporaryFolder folder;
  run::Config recipe = config();
  recipe.epochs = 1;
  const Outcome without = train(recipe);
  recipe.cache = folder.file("cache");
  for (const char* devices : {"cpu:2", "cpu:1"}) {  // cold, then warm
    recipe.devices = devices;
    const Outcome with = train(recipe);
    EXPECT_EQ(with.hash, without.hash);
    EXPECT_EQ(with.last.test->loss, without.last.test->loss);
  }
  // Points of six rooms, and voxels of the one to test on, which has no transforms.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.file("cache")), {}), 7);
}

TEST(CloudTraining, TakesPublishedData) {
  const TemporaryFolder folder;
  data::published::scannet(folder.file("scannet"));
  data::published::s3dis(folder.file("s3dis"));
  data::published::kitti(folder.file("kitti"));
  data::published::nuscenes(folder.file("nuscenes"));
  for (const std::string kind : {"scannet", "s3dis", "kitti", "nuscenes"}) {
    SCOPED_TRACE(kind);
    run::Config recipe = config();
    recipe.data = kind + ":" + folder.file(kind);
    recipe.replicas = 1;
    recipe.augment = "turn,flip";
    const Outcome outcome = train(recipe);
    EXPECT_GT(outcome.last.examples, 0);
    EXPECT_TRUE(std::isfinite(outcome.last.train_loss));
    EXPECT_EQ(outcome.last.test->class_iou.size(), make_task(recipe).train->info().classes);
  }
}

/// Classes of whole clouds; the second batch has one cloud, so a replica without any.
TEST(CloudTraining, ClassifiesWholeClouds) {
  const TemporaryFolder folder;
  data::published::modelnet(folder.file("modelnet"));
  run::Config recipe = config();
  recipe.model = "minkresnet14";
  recipe.data = "modelnet40:" + folder.file("modelnet") + ":400";
  recipe.voxel = 0.1;
  recipe.augment = "turn,scale:0.1";
  recipe.batch = recipe.replicas = 2;
  recipe.epochs = 1;
  const Outcome outcome = train(recipe);
  EXPECT_EQ(outcome.last.examples, 3);
  EXPECT_TRUE(std::isfinite(outcome.last.train_loss));
  EXPECT_EQ(outcome.last.test->examples, 2);
  EXPECT_TRUE(outcome.last.test->class_iou.empty());
  EXPECT_EQ(outcome.last.test->confusion.sum().item<int64_t>(), 2);
  recipe.devices = "cpu:1";
  EXPECT_EQ(train(recipe).hash, outcome.hash);
  recipe.augment = "mix";
  EXPECT_THAT([&] { train(recipe); }, ThrowsMessage<Error>(HasSubstr("leave mix out")));
  recipe.augment = "none";
  recipe.model = "minkunet14a";
  EXPECT_THAT([&] { train(recipe); },
              ThrowsMessage<Error>(HasSubstr("expected a network that labels clouds, such as minkresnet14")));
  recipe.model = "minkresnet14";
  recipe.data = "rooms:4:4";
  EXPECT_THAT([&] { train(recipe); },
              ThrowsMessage<Error>(HasSubstr("expected a network that labels points, such as minkunet34c")));
}

/// What colours alone tell: the baseline beside the networks.
TEST(CloudTraining, HasALinearModelOfEachVoxel) {
  run::Config recipe = config();
  recipe.model = "voxel_linear";
  recipe.augment = "none";
  recipe.epochs = 20;
  recipe.lr = 0.5;
  recipe.check_data = false;
  recipe.evaluate_every = 0;
  const Outcome outcome = train(recipe);
  EXPECT_EQ(outcome.weights.size(), 2);
  EXPECT_EQ(outcome.weights.at("linear.weight").sizes(), at::IntArrayRef({8, 3}));
  EXPECT_GT(outcome.last.train_accuracy, 0.2);
  EXPECT_LT(outcome.last.train_accuracy, 0.75);  // what a network has after twelve epochs
}

TEST(CloudTraining, TellsNetworksAndDataApart) {
  run::Config recipe = config();
  recipe.data = "synthetic:1x8x8:4:20";
  EXPECT_THAT([&] { train(recipe); }, ThrowsMessage<Error>(HasSubstr("expected clouds of points")));
  recipe = config();
  recipe.model = "lenet";
  EXPECT_THAT([&] { train(recipe); }, ThrowsMessage<Error>(HasSubstr("expected an image")));
  recipe = config();
  recipe.augment = "crop:4";
  EXPECT_THAT([&] { train(recipe); }, ThrowsMessage<Error>(HasSubstr("is for images")));
  recipe = config();
  recipe.augment = "normalize";
  EXPECT_THAT([&] { train(recipe); }, ThrowsMessage<Error>(HasSubstr("leave normalize out")));
}

TEST(CloudTraining, HasABatchOfItsOwnSizeWhereNobodySays) {
  run::Config recipe = config();
  recipe.data = "rooms:16:3";
  recipe.batch = recipe.replicas = 0;
  const Trainer trainer(recipe, make_task(recipe));
  EXPECT_EQ(trainer.config().batch, 8);
  EXPECT_EQ(trainer.config().replicas, 8);
  EXPECT_EQ(trainer.config().evaluate_batch, 8);
}

}  // namespace
}  // namespace lockstep::train
