// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/cloud.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/core/random.h"
#include "lockstep/data/loader.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Cloud random_cloud(int64_t points, uint64_t seed) {
  const RandomKey key{seed};
  Cloud cloud{.channels = 2};
  for (int64_t i = 0; i < points; ++i) {
    Point point;
    for (size_t axis = 0; axis < 3; ++axis) point[axis] = static_cast<float>(4 * uniform(key.fold(axis), i) - 2);
    cloud.points.push_back(point);
    for (uint64_t c = 0; c < 2; ++c) cloud.features.push_back(uniform_float(key.fold(3 + c), i));
    cloud.labels.push_back(static_cast<int64_t>(below(key.fold(5), i, 4)) - (below(key.fold(6), i, 9) == 0 ? 104 : 0));
    if (cloud.labels.back() < 0) cloud.labels.back() = -100;
  }
  return cloud;
}

/// A map from voxels to their points, and counts of labels one by one.
TEST(Voxelise, GivesMeansAndTheCommonestLabelOfEachVoxel) {
  const Cloud cloud = random_cloud(500, 1);
  const double voxel = 0.7;
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

Cloud transformed(const Cloud& cloud, const std::string& how, uint64_t seed = 7) {
  Cloud copy = cloud;
  transform(copy, Transforms::parse(how), RandomKey{seed});
  return copy;
}

double length(const Point& p, size_t axes = 3) {
  return std::sqrt(std::inner_product(p.begin(), p.begin() + axes, p.begin(), 0.0));
}

TEST(CloudTransforms, TurningFlippingAndScalingKeepAngles) {
  const Cloud cloud = random_cloud(50, 4);
  const Cloud turned = transformed(cloud, "turn"), flipped = transformed(cloud, "flip:1"),
              scaled = transformed(cloud, "scale:0.2");
  const double factor = length(scaled.points[0]) / length(cloud.points[0]);
  EXPECT_GT(std::abs(factor - 1), 1e-4);
  EXPECT_LE(std::abs(factor - 1), 0.2);
  EXPECT_NE(turned.points[0][0], cloud.points[0][0]);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_NEAR(length(turned.points[i], 2), length(cloud.points[i], 2), 1e-5);
    EXPECT_EQ(turned.points[i][2], cloud.points[i][2]);
    EXPECT_EQ(flipped.points[i], (Point{-cloud.points[i][0], -cloud.points[i][1], cloud.points[i][2]}));
    for (size_t axis = 0; axis < 3; ++axis) EXPECT_NEAR(scaled.points[i][axis], factor * cloud.points[i][axis], 1e-5);
  }
}

TEST(CloudTransforms, MovingAndJitteringMovePointsAsFarAsTheySay) {
  const Cloud cloud = random_cloud(4000, 5);
  const Cloud moved = transformed(cloud, "move:0.5"), jittered = transformed(cloud, "jitter:0.01"),
              bent = transformed(cloud, "elastic:0.5:0.1");
  double jitter = 0, bend = 0;
  for (size_t i = 0; i < cloud.points.size(); ++i)
    for (size_t axis = 0; axis < 3; ++axis) {
      const float shift = moved.points[0][axis] - cloud.points[0][axis];
      EXPECT_LE(std::abs(shift), 0.5F);
      EXPECT_NEAR(moved.points[i][axis] - cloud.points[i][axis], shift, 1e-5);
      jitter += std::pow(jittered.points[i][axis] - cloud.points[i][axis], 2);
      bend += std::pow(bent.points[i][axis] - cloud.points[i][axis], 2);
    }
  EXPECT_NEAR(std::sqrt(jitter / 12000), 0.01, 5e-4);
  // Between the nodes' vectors: the mean over a cell of the squared weights is (2/3)^3.
  EXPECT_NEAR(std::sqrt(bend / 12000), 0.1 * std::pow(2.0 / 3, 1.5), 0.01);
}

TEST(CloudTransforms, ElasticMovesNeighboursAlike) {
  Cloud cloud = random_cloud(200, 6);
  for (size_t i = 0; i < 100; ++i) {
    cloud.points[100 + i] = cloud.points[i];
    cloud.points[100 + i][0] += 0.001F;
  }
  const Cloud bent = transformed(cloud, "elastic:0.5:0.1");
  for (size_t i = 0; i < 100; ++i)
    for (size_t axis = 0; axis < 3; ++axis) EXPECT_NEAR(bent.points[100 + i][axis], bent.points[i][axis], 0.003);
}

TEST(CloudTransforms, DroppingLeavesOutWholePoints) {
  const Cloud cloud = random_cloud(2000, 8);
  const Cloud kept = transformed(cloud, "drop:0.25");
  EXPECT_NEAR(static_cast<double>(kept.size()), 1500, 60);
  ASSERT_EQ(kept.features.size(), 2 * kept.points.size());
  int64_t at = 0;
  for (int64_t i = 0; i < kept.size(); ++i, ++at) {
    while (cloud.points[at] != kept.points[i]) ++at;
    EXPECT_EQ(kept.labels[i], cloud.labels[at]);
    EXPECT_EQ(kept.features[2 * i + 1], cloud.features[2 * at + 1]);
  }
}

TEST(CloudTransforms, ChromaticKeepsColoursInRange) {
  const Cloud cloud = random_cloud(500, 9), changed = transformed(cloud, "chromatic:0.3");
  double difference = 0;
  for (size_t i = 0; i < cloud.features.size(); ++i) {
    EXPECT_GE(changed.features[i], 0);
    EXPECT_LE(changed.features[i], 1);
    difference += std::abs(changed.features[i] - cloud.features[i]);
  }
  EXPECT_GT(difference, 1);
  EXPECT_EQ(changed.points, cloud.points);
}

TEST(CloudTransforms, FollowFromTheKeyAlone) {
  const std::string all = "turn,flip,scale:0.1,move:0.5,jitter:0.005,drop:0.1,chromatic,elastic:0.4:0.05";
  const Cloud cloud = random_cloud(100, 10);
  EXPECT_EQ(transformed(cloud, all).points, transformed(cloud, all).points);
  EXPECT_EQ(transformed(cloud, all).features, transformed(cloud, all).features);
  EXPECT_NE(transformed(cloud, all).points, transformed(cloud, all, 8).points);
  EXPECT_EQ(Transforms::parse(Transforms::parse(all).to_string()), Transforms::parse(all));
  EXPECT_TRUE(Transforms::parse(all).deterministic().empty());
}

TEST(CloudTransforms, AreNotThoseOfImages) {
  Cloud cloud = random_cloud(3, 11);
  EXPECT_THAT([&] { transform(cloud, Transforms::parse("turn,crop:4"), {}); },
              ThrowsMessage<Error>(HasSubstr("'crop:4' is for images, expected of clouds turn")));
  EXPECT_THAT([] { Transforms::parse("scale"); }, ThrowsMessage<Error>(HasSubstr("scale:PART")));
  EXPECT_THAT([] { Transforms::parse("elastic:0:1"); }, ThrowsMessage<Error>(HasSubstr("expected them above 0")));
  const auto images = open_dataset("synthetic:1x8x8:4:20", Split::train);
  EXPECT_THAT([&] { Loader(images, Order::sequential(20), {.batch = 4, .transforms = Transforms::parse("turn")}); },
              ThrowsMessage<Error>(HasSubstr("is for clouds")));
}

TEST(BalancedShares, DivideCostsEvenlyAndUseEachExampleOnce) {
  const std::vector<int64_t> costs{5, 9, 1, 7, 3, 8, 2, 6, 4};
  const auto shares = balanced_shares(costs, 3);
  std::set<int64_t> seen;
  for (const auto& share : shares) {
    int64_t load = 0;
    for (const int64_t i : share) {
      load += costs[i];
      EXPECT_TRUE(seen.insert(i).second);
    }
    EXPECT_NEAR(static_cast<double>(load), 15, 1);
    EXPECT_TRUE(std::ranges::is_sorted(share));
  }
  EXPECT_EQ(seen.size(), costs.size());
}

TEST(BalancedShares, MayBeEmpty) {
  const std::vector<int64_t> costs{4, 4};
  EXPECT_EQ(balanced_shares(costs, 4), (std::vector<std::vector<int64_t>>{{0}, {1}, {}, {}}));
  EXPECT_EQ(balanced_shares({}, 2).size(), 2);
  EXPECT_THROW(balanced_shares(costs, 0), Error);
}

std::shared_ptr<const CloudDataset> rooms(const std::string& spec = "rooms:12", uint64_t seed = 3) {
  return std::dynamic_pointer_cast<const CloudDataset>(open_dataset(spec, Split::train, {.seed = seed, .voxel = 0.2}));
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
  const auto test = open_dataset("rooms:12", Split::test, {.seed = 3, .voxel = 0.2});
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

LoaderOptions options(int64_t replicas, std::optional<Span> block = std::nullopt) {
  return {.batch = 5,
          .replicas = replicas,
          .block = block,
          .transforms = Transforms::parse("turn,jitter:0.01,drop:0.1"),
          .seed = 9};
}

TEST(CloudLoader, SharesAreTheSameWhereverTheyAreRead) {
  const auto scenes = rooms();
  const Order order = Order::shuffled(12, 1);
  Loader all(scenes, order, options(3)), part(scenes, order, options(3, Span{1, 3}));
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

TEST(CloudLoader, DoesNotPad) {
  EXPECT_THAT([] { Loader(rooms(), Order::sequential(12), {.batch = 5, .tail = Tail::pad}); },
              ThrowsMessage<Error>(HasSubstr("expected exact or drop_last")));
}

}  // namespace
}  // namespace lockstep::data
