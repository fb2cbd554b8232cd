// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/sorted_coordinates.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/points/detail/sorted_keys.h"

namespace lockstep::points {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

at::Tensor rows(const std::vector<int32_t>& values, int64_t columns) {
  return at::tensor(values, at::kInt).view({-1, columns});
}

TEST(SortedCoordinates, ShareTheirMemoryAndKnowTheirKeys) {
  const at::Tensor given = rows({0, -1, 5, 0, 3, 0, 2, -9, 9}, 3);
  const SortedCoordinates sorted(given);
  EXPECT_TRUE(sorted.coordinates().is_same(given));
  EXPECT_EQ(sorted.keys()->size(), 3);
  EXPECT_EQ(sorted.box()->high, (std::vector<int64_t>{2, 3, 9}));
  EXPECT_EQ(SortedCoordinates(at::empty({0, 4}, at::kInt)).keys()->size(), 0);
  EXPECT_FALSE(SortedCoordinates().defined());
}

TEST(SortedCoordinates, NameTheRowThatIsOutOfOrder) {
  EXPECT_THAT(
      [] {
        SortedCoordinates(rows({0, 1, 0, 2, 0, 1, 0, 5}, 2));
      },
      ThrowsMessage<Error>(HasSubstr("row 2 does not come after row 1")));
  EXPECT_THAT(
      [] {
        SortedCoordinates(rows({0, 1, 0, 2, 0, 2}, 2));
      },
      ThrowsMessage<Error>(HasSubstr("row 2 does not come after row 1")));
}

TEST(SortedCoordinates, NoticeThatSomebodyWroteToThem) {
  const at::Tensor given = rows({0, 1, 0, 2}, 2);
  const SortedCoordinates sorted(given);
  given.select(1, 1).add_(1);
  EXPECT_THAT([&] { sorted.coordinates(); }, ThrowsMessage<Error>(HasSubstr("written to")));
  EXPECT_THAT([] { SortedCoordinates().coordinates(); }, ThrowsMessage<Error>(HasSubstr("no coordinates")));
}

TEST(SortedCoordinates, RefuseWhatIsNoTableOfCoordinates) {
  EXPECT_THROW(SortedCoordinates{at::Tensor()}, Error);
  EXPECT_THROW(SortedCoordinates(at::zeros({4}, at::kInt)), Error);
  EXPECT_THROW(SortedCoordinates(at::zeros({1, 1}, at::kInt)), Error);
  EXPECT_THROW(SortedCoordinates(at::zeros({1, 4}, at::kLong)), Error);
  EXPECT_THROW(SortedCoordinates(rows({0, 1, 0, 2}, 2).t()), Error);
  EXPECT_THAT([] { SortedCoordinates(rows({-1, 1}, 2)); }, ThrowsMessage<Error>(HasSubstr("batch index is -1")));
}

}  // namespace
}  // namespace lockstep::points
