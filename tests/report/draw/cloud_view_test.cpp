// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/cloud_view.h"
#include "lockstep/pictures/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::report {
namespace {

using Points = std::vector<std::array<float, 3>>;
constexpr pictures::Rgb kRed{255, 0, 0}, kGreen{0, 255, 0}, kBlue{0, 0, 255}, kWhite{255, 255, 255};

pictures::Rgb pixel(const pictures::Image& image, int x, int y) {
  const auto* at = image.pixels.data() + 3 * (static_cast<size_t>(y) * image.width + x);
  return {at[0], at[1], at[2]};
}

int64_t count(const pictures::Image& image, const pictures::Rgb& colour, int left, int right) {
  int64_t found = 0;
  for (int y = 0; y < image.height; ++y)
    for (int x = left; x < right; ++x) found += pixel(image, x, y) == colour ? 1 : 0;
  return found;
}

/// Green stands above red in one corner; blue is at the top and left out.
TEST(CloudView, ShowsWhatIsNearestOnTheLeftFromAbove) {
  const Points points{{0, 0, 0}, {0, 0, 0.5F}, {1, 1, 1}};
  const std::vector<pictures::Rgb> colours{kRed, kGreen, kBlue};
  const pictures::Image image = draw_cloud(points, colours, 0.1, 101);
  ASSERT_EQ(image.width, 202);
  ASSERT_EQ(image.height, 101);
  EXPECT_EQ(pixel(image, 2, 98), kGreen);
  EXPECT_EQ(pixel(image, 50, 50), kWhite);
  EXPECT_EQ(count(image, kRed, 0, 101), 0);
  EXPECT_EQ(count(image, kBlue, 0, 202), 0);
  EXPECT_GT(count(image, kRed, 101, 202), 0);  // in perspective one is under the other
  EXPECT_GT(count(image, kGreen, 101, 202), 0);
  EXPECT_GT(count(draw_cloud(points, colours, 0.1, 101, Shown::whole), kBlue, 0, 101), 0);
}

TEST(CloudView, TakesACloudWithoutPointsAndPointsOfAnySize) {
  EXPECT_EQ(count(draw_cloud({}, {}, 0.1, 10), kWhite, 0, 20), 200);
  const pictures::Image dots = draw_cloud(Points{{0, 0, 0}, {5, 3, 0}}, std::vector<pictures::Rgb>{kRed, kRed}, 0, 50);
  EXPECT_EQ(count(dots, kRed, 0, 50), 2);
  EXPECT_EQ(count(draw_cloud(Points{{1, 1, 1}}, std::vector<pictures::Rgb>{kRed}, 100, 20), kRed, 0, 20), 400);
}

TEST(CloudView, ColoursTellClassesApart) {
  std::set<pictures::Rgb> colours;
  for (int64_t label = -1; label < 20; ++label) colours.insert(class_colour(label));
  EXPECT_EQ(colours.size(), 21);
  EXPECT_THROW(draw_cloud(Points{{0, 0, 0}}, {}, 1), Error);
}

}  // namespace
}  // namespace lockstep::report
