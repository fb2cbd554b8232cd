// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/cloud.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "data/clouds/clouds.h"
#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/ply.h"
#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Against a map from voxels to their points, and counts of labels one by one.
void expect_voxels(const Cloud& cloud, double voxel) {
  std::map<std::array<int, 3>, std::vector<int64_t>> cells;
  for (int64_t i = 0; i < cloud.size(); ++i) {
    std::array<int, 3> cell;
    for (size_t axis = 0; axis < 3; ++axis)
      cell[axis] = static_cast<int>(std::floor(static_cast<double>(cloud.points[i][axis]) / voxel));
    cells[cell].push_back(i);
  }
  const Voxels voxels = voxelise(cloud, voxel);
  ASSERT_EQ(voxels.coordinates.size(0), std::ssize(cells));
  int64_t row = 0;
  for (const auto& [cell, points] : cells) {  // in the order of coordinates
    std::map<int64_t, int> counts;
    std::array<double, 2> sums{};
    for (const int64_t i : points) {
      EXPECT_EQ(voxels.voxel_of_point[i], row);
      if (cloud.labels[i] >= 0) ++counts[cloud.labels[i]];
      for (size_t c = 0; c < 2; ++c) sums[c] += cloud.features[2 * i + c];
    }
    int64_t best = -100;
    for (const auto& [label, count] : counts)
      if (best < 0 || count > counts[best]) best = label;
    for (int axis = 0; axis < 3; ++axis) EXPECT_EQ(voxels.coordinates[row][axis].item<int>(), cell[axis]);
    for (int c = 0; c < 2; ++c)
      EXPECT_NEAR(voxels.features[row][c].item<double>(), sums[c] / static_cast<double>(points.size()), 1e-6);
    EXPECT_EQ(voxels.labels[row].item<int64_t>(), best);
    ++row;
  }
}

TEST(Voxelise, GivesMeansAndTheCommonestLabelOfEachVoxel) {
  expect_voxels(random_cloud(500, 1), 0.7);
}

TEST(Voxelise, TakesCloudsAsWideAsAKeyHolds) {
  Cloud cloud = random_cloud(60, 4);
  for (size_t i = 0; i < cloud.points.size(); ++i)
    for (size_t axis = 0; axis < 3; ++axis) cloud.points[i][axis] += (i >> axis & 1) == 0 ? -1e6f : 1e6f;
  expect_voxels(cloud, 1);
  for (Point& point : cloud.points) point[1] = 7;  // one axis that needs no bits
  expect_voxels(cloud, 1);
}

TEST(Voxelise, TakesCloudsWithoutPointsAndWithoutLabels) {
  EXPECT_EQ(voxelise(Cloud{}, 1).coordinates.sizes(), at::IntArrayRef({0, 3}));
  Cloud cloud = random_cloud(5, 2);
  cloud.labels.clear();
  EXPECT_TRUE(voxelise(cloud, 100).labels.eq(-100).all().item<bool>());
}

TEST(Voxelise, SaysWhatIsWrongWithACloud) {
  Cloud cloud = random_cloud(5, 3);
  EXPECT_THAT([&] { voxelise(cloud, 0); }, ThrowsMessage<Error>(HasSubstr("expected it above 0")));
  EXPECT_THAT([&] { voxelise(cloud, 1e-8); }, ThrowsMessage<Error>(HasSubstr("larger voxels")));
  cloud.points[3][1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([&] { voxelise(cloud, 1); }, ThrowsMessage<Error>(HasSubstr("point 3 has the coordinate nan")));
  cloud.points[3][1] = 0;
  cloud.features.pop_back();
  EXPECT_THAT([&] { voxelise(cloud, 1); }, ThrowsMessage<Error>(HasSubstr("5 points have 9 features")));
}

std::shared_ptr<const CloudDataset> rooms(const std::string& spec = "rooms:12", uint64_t seed = 3) {
  return std::dynamic_pointer_cast<const CloudDataset>(open_dataset(spec, Subset::train, {.seed = seed, .voxel = 0.2}));
}

TEST(Rooms, HaveEveryClassAndLieOnSurfaces) {
  const auto scenes = rooms();
  ASSERT_NE(scenes, nullptr);
  ASSERT_EQ(scenes->info().classes, 8);
  std::map<int64_t, int64_t> counts;
  for (int64_t id = 0; id < scenes->size(); ++id) {
    const Cloud cloud = scenes->read_cloud(id);
    ASSERT_EQ(cloud.features.size(), 3 * cloud.points.size());
    for (const int64_t label : cloud.labels) ++counts[label];
    EXPECT_TRUE(std::ranges::all_of(cloud.features, [](float value) { return 0 <= value && value <= 1; }));
    for (int64_t i = 0; i < cloud.size(); ++i) {
      const auto& [x, y, z] = cloud.points[i];
      EXPECT_TRUE(-0.1 < x && x < 6 && -0.1 < y && y < 6 && -0.1 < z && z < 3.1) << x << " " << y << " " << z;
      EXPECT_TRUE(cloud.labels[i] != 0 || std::abs(z) < 0.05) << z;
      EXPECT_TRUE(cloud.labels[i] != 1 || z > 2.2) << z;
    }
  }
  ASSERT_EQ(counts.size(), 8);
  for (const auto& [label, count] : counts) EXPECT_GT(count, 50) << scenes->info().class_names[label];
}

TEST(Rooms, AreKeyedBySeedSplitAndNumber) {
  const auto one = rooms(), again = rooms(), other = rooms("rooms:12", 4);
  EXPECT_EQ(one->read_cloud(5).points, again->read_cloud(5).points);
  EXPECT_EQ(one->read_cloud(5).points, rooms("rooms:100")->read_cloud(5).points);
  EXPECT_NE(one->read_cloud(5).points, one->read_cloud(6).points);
  EXPECT_NE(one->read_cloud(5).points, other->read_cloud(5).points);
  const auto test = open_dataset("rooms:12", Subset::test, {.seed = 3, .voxel = 0.2});
  EXPECT_EQ(test->size(), 1);
  EXPECT_NE(one->read_cloud(0).points, dynamic_cast<const CloudDataset&>(*test).read_cloud(0).points);
}

/// Costs are of all surfaces, and the scanner sees most of them.
TEST(Rooms, KnowAboutHowManyVoxelsTheyHave) {
  const auto scenes = rooms();
  for (int64_t id = 0; id < 4; ++id) {
    const auto voxels = static_cast<double>(voxelise(scenes->read_cloud(id), 0.2).labels.size(0));
    const auto cost = static_cast<double>(scenes->cost(id));
    EXPECT_GT(voxels, 0.4 * cost);
    EXPECT_LT(voxels, 1.6 * cost);
  }
}

TEST(Rooms, SayWhatIsExpected) {
  EXPECT_THAT([] { rooms("rooms:0"); }, ThrowsMessage<Error>(HasSubstr("expected rooms:SCENES")));
  EXPECT_THAT([] { rooms("rooms:4:1"); }, ThrowsMessage<Error>(HasSubstr("3 to 100 metres")));
  EXPECT_THAT([] { rooms()->read_cloud(12); }, ThrowsMessage<Error>(HasSubstr("example 12 of rooms")));
  EXPECT_THAT([] { rooms()->targets(); }, ThrowsMessage<Error>(HasSubstr("a target for each point")));
  EXPECT_EQ(first_of(rooms(), 3)->size(), 3);
}

LoaderOptions options(int64_t replicas, std::optional<Interval> block = std::nullopt) {
  return {.batch = 5,
          .replicas = replicas,
          .block = block,
          .transforms = Transforms::parse("turn,jitter:0.01,drop:0.1,mix:0.5"),
          .seed = 9};
}

TEST(CloudLoader, SharesAreTheSameWhereverTheyAreRead) {
  const auto scenes = rooms();
  const Order order = Order::shuffled(12, 1);
  Loader all(scenes, order, options(3)), part(scenes, order, options(3, Interval{1, 3}));
  for (int step = 0; step < 6; ++step)  // two epochs
    for (int64_t replica = 1; replica < 3; ++replica) {
      const Batch a = all.next(replica), b = part.next(replica);
      EXPECT_TRUE(at::equal(a.ids, b.ids));
      EXPECT_TRUE(at::equal(a.coordinates, b.coordinates));
      EXPECT_TRUE(at::equal(a.inputs, b.inputs));
      EXPECT_TRUE(at::equal(a.targets, b.targets));
    }
}

TEST(CloudLoader, AnEpochHasEachCloudOnceWhateverTheReplicas) {
  const auto scenes = rooms();
  for (const int64_t replicas : {1, 4, 8}) {
    Loader loader(scenes, Order::shuffled(12, 1), options(replicas));
    std::multiset<int64_t> ids;
    double weight = 0;
    for (int64_t replica = 0; replica < replicas; ++replica)
      for (const Batch& batch : loader.share(replica)) {
        EXPECT_EQ(batch.coordinates.sizes(), at::IntArrayRef({batch.inputs.size(0), 4}));
        EXPECT_EQ(batch.targets.size(0), batch.inputs.size(0));
        EXPECT_TRUE(batch.sorted_coordinates.coordinates().is_same(batch.coordinates));
        EXPECT_EQ(batch.weight, batch.targets.ge(0).sum().item<double>());
        if (batch.count > 0) {
          EXPECT_EQ(batch.coordinates.select(1, 0).max().item<int64_t>(), batch.count - 1);
        } else {
          EXPECT_EQ(batch.inputs.sizes(), at::IntArrayRef({0, 3}));
        }
        for (int64_t i = 0; i < batch.count; ++i) ids.insert(batch.ids[i].item<int64_t>());
        weight += batch.weight;
      }
    EXPECT_EQ(ids.size(), 12);
    EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 12);
    EXPECT_GT(weight, 12 * 500);
  }
}

TEST(CloudLoader, TransformsChangeWithTheEpochAndResumeWhereTheyWere) {
  const auto scenes = rooms("rooms:5");
  Loader loader(scenes, Order::sequential(5), options(1));
  const Batch first = loader.next(), second = loader.next();
  EXPECT_TRUE(at::equal(first.ids, second.ids));
  EXPECT_FALSE(at::equal(first.coordinates, second.coordinates));
  Loader resumed(scenes, Order::sequential(5), options(1));
  resumed.seek(second.at);
  EXPECT_TRUE(at::equal(resumed.next().inputs, second.inputs));
}

TEST(CloudLoader, SharesOfABatchAreBalanced) {
  const auto scenes = rooms("rooms:32:8");
  Loader loader(scenes, Order::sequential(32), {.batch = 16, .replicas = 4});
  double least = 1e18, most = 0;
  for (int64_t replica = 0; replica < 4; ++replica) {
    const double weight = loader.next(replica).weight;
    least = std::min(least, weight);
    most = std::max(most, weight);
  }
  EXPECT_LT(most / least, 1.15);
}

/// What is mixed in is known without reading, so shares are balanced by what they really get.
TEST(CloudLoader, BalancesMixedScenesToo) {
  const auto scenes = rooms("rooms:32:8");
  Loader loader(scenes, Order::sequential(32),
                {.batch = 16, .replicas = 4, .transforms = Transforms::parse("mix:0.5"), .seed = 2});
  std::vector<double> points;
  for (int64_t replica = 0; replica < 4; ++replica) points.push_back(loader.next(replica).weight);
  EXPECT_LT(std::ranges::max(points) / std::ranges::min(points), 1.2);
}

TEST(CloudLoader, DoesNotPad) {
  EXPECT_THAT([] { Loader(rooms(), Order::sequential(12), {.batch = 5, .tail = Tail::pad}); },
              ThrowsMessage<Error>(HasSubstr("expected exact or drop_last")));
}

}  // namespace
}  // namespace lockstep::data
