// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "data/clouds/clouds.h"
#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "support/error_of.h"

namespace lockstep::data {
namespace {

using lockstep::test::error_of;
using testing::HasSubstr;
using testing::ThrowsMessage;

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

TEST(CloudTransforms, ElasticSaysWhereCellsAreTooSmall) {
  Cloud cloud{.points = {{0, 0, 0}, {42, 42, 42}}, .features = {1, 1}, .channels = 1};
  for (const char* cell : {"0.01", "1e-5", "1e-9", "1e-60"})
    EXPECT_THAT([&] { transformed(cloud, text("elastic:", cell, ":0.05")); },
                ThrowsMessage<Error>(HasSubstr("nodes or more, expected fewer than 2^26: larger cells")))
        << cell;
  // The number of its nodes is 0 in 64 bits.
  const float width = 4194302.0F * 1e-5F;
  cloud.points[1] = {width, width, width};
  EXPECT_THROW(transformed(cloud, "elastic:1e-5:0.05"), Error);
}

TEST(CloudTransforms, DroppingLeavesOutWholePoints) {
  const Cloud cloud = random_cloud(2000, 8);
  EXPECT_THAT(error_of([] { Transforms::parse("drop:1"); }), HasSubstr("some points must stay"));
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

TEST(CloudTransforms, AWindowKeepsASquareAroundAPoint) {
  const Cloud cloud = random_cloud(2000, 12);
  std::set<Point> kept_by_some;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Cloud kept = transformed(cloud, "window:1.5", seed);
    Point low = kept.points[0], high = low;
    for (const Point& point : kept.points)
      for (size_t axis = 0; axis < 3; ++axis) {
        low[axis] = std::min(low[axis], point[axis]);
        high[axis] = std::max(high[axis], point[axis]);
      }
    EXPECT_LE(high[0] - low[0], 1.5001F);
    EXPECT_LE(high[1] - low[1], 1.5001F);
    EXPECT_GT(high[2] - low[2], 3.5F);  // from floor to ceiling
    // Nothing that lies in the box is left out, and labels and features go along.
    int64_t at = 0;
    for (int64_t i = 0; i < cloud.size(); ++i) {
      const auto& [x, y, z] = cloud.points[i];
      if (at < kept.size() && cloud.points[i] == kept.points[at]) {
        EXPECT_EQ(kept.labels[at], cloud.labels[i]);
        EXPECT_EQ(kept.features[2 * at + 1], cloud.features[2 * i + 1]);
        ++at;
      } else {
        EXPECT_FALSE(low[0] <= x && x <= high[0] && low[1] <= y && y <= high[1]);
      }
    }
    EXPECT_EQ(at, kept.size());
    kept_by_some.insert(kept.points.begin(), kept.points.end());
  }
  EXPECT_GT(kept_by_some.size(), 1500);
  EXPECT_EQ(transformed(cloud, "window:9").size(), cloud.size());
}

/// Clouds by number, each with a label of its own; `reads` counts who is asked for.
struct Numbered {
  OtherScenes others(int64_t id, int64_t count = 8) {
    return {id, count, [this](int64_t other) {
              reads.push_back(other);
              return cloud(other);
            }};
  }
  static Cloud cloud(int64_t id) {
    Cloud out = random_cloud(40 + id, 100 + id);
    out.labels.assign(out.points.size(), id);
    return out;
  }
  std::vector<int64_t> reads{};
};

TEST(CloudTransforms, MixAddsAnotherSceneMiddleOverMiddle) {
  Numbered scenes;
  std::set<int64_t> others;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Cloud own = Numbered::cloud(3);
    Cloud mixed = own;
    transform(mixed, Transforms::parse("mix:1"), RandomKey{seed}, scenes.others(3));
    const int64_t other = scenes.reads.back();
    EXPECT_EQ(mixed_in(Transforms::parse("mix:1"), RandomKey{seed}, 3, 8), other);
    ASSERT_EQ(mixed.size(), own.size() + 40 + other);
    ASSERT_EQ(mixed.features.size(), 2 * mixed.points.size());
    const Cloud added = Numbered::cloud(other);
    std::array<double, 2> middle_of_own{}, middle_of_added{};
    for (int64_t i = 0; i < mixed.size(); ++i) {
      const bool first = i < own.size();
      EXPECT_EQ(mixed.labels[i], first ? 3 : other);
      for (size_t axis = 0; axis < 2; ++axis)
        (first ? middle_of_own : middle_of_added)[axis] +=
            static_cast<double>(mixed.points[i][axis]) / static_cast<double>(first ? own.size() : added.size());
      EXPECT_EQ(mixed.points[i][2], first ? own.points[i][2] : added.points[i - own.size()][2]);
    }
    for (size_t axis = 0; axis < 2; ++axis) EXPECT_NEAR(middle_of_own[axis], middle_of_added[axis], 1e-5);
    others.insert(other);
  }
  EXPECT_EQ(others, (std::set<int64_t>{0, 1, 2, 4, 5, 6, 7}));  // any but itself
}

TEST(CloudTransforms, MixTransformsBothScenesByTheirOwnDraws) {
  Numbered scenes;
  const Cloud own = Numbered::cloud(3);
  Cloud mixed = own;
  transform(mixed, Transforms::parse("scale:0.5,mix:1,flip:1"), RandomKey{5}, scenes.others(3));
  const Cloud added = Numbered::cloud(scenes.reads.back());
  const auto height = [](const Cloud& cloud, int64_t i) { return static_cast<double>(cloud.points[i][2]); };
  const double own_factor = height(mixed, 0) / height(own, 0),
               added_factor = height(mixed, own.size()) / height(added, 0);
  EXPECT_NE(own_factor, added_factor);
  for (int64_t i = 0; i < added.size(); ++i)
    EXPECT_NEAR(height(mixed, own.size() + i), added_factor * height(added, i), 1e-5);
  EXPECT_NEAR(mixed.points[0][0], -own_factor * own.points[0][0], 1e-5);  // flipped with the rest
}

TEST(CloudTransforms, MixDoesNothingAloneOrAtProbabilityZero) {
  Numbered scenes;
  for (const auto& [how, count] : {std::pair("mix:0", 8), {"mix:1", 1}}) {
    Cloud cloud = Numbered::cloud(0);
    transform(cloud, Transforms::parse(how), RandomKey{1}, scenes.others(0, count));
    EXPECT_EQ(cloud.points, Numbered::cloud(0).points);
  }
  EXPECT_TRUE(scenes.reads.empty());
  EXPECT_THAT([] { Transforms::parse("mix,turn,mix"); }, ThrowsMessage<Error>(HasSubstr("more than one mix")));
  EXPECT_THAT([] { Transforms::parse("window:0"); }, ThrowsMessage<Error>(HasSubstr("expected it above 0")));
  EXPECT_THAT([] { Transforms::parse("mix:2"); }, ThrowsMessage<Error>(HasSubstr("expected one in [0, 1]")));
}

TEST(CloudTransforms, FollowFromTheKeyAlone) {
  const std::string all = "turn,flip,scale:0.1,move:0.5,jitter:0.005,drop:0.1,chromatic,elastic:0.4:0.05,window:3,mix";
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
  const auto images = open_dataset("synthetic:1x8x8:4:20", Subset::train);
  EXPECT_THAT([&] { Loader(images, Order::sequential(20), {.batch = 4, .transforms = Transforms::parse("turn")}); },
              ThrowsMessage<Error>(HasSubstr("is for clouds")));
}

}  // namespace
}  // namespace lockstep::data
