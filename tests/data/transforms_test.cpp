// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/transforms.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <set>

#include "data/prepared_transforms.h"
#include "lockstep/data/dataset.h"
#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

constexpr int64_t kHeight = 5, kWidth = 6, kArea = kHeight * kWidth;

/// Images [2, 5, 6] whose pixels all differ, and are not 0.
std::shared_ptr<const Dataset> pixels(int64_t count) {
  return make_dataset("pixels", at::arange(1, count * 2 * kArea + 1, at::kFloat).view({count, 2, kHeight, kWidth}),
                      at::zeros({count}, at::kLong));
}

std::vector<float> run(const Transforms& transforms, const Dataset& dataset, std::vector<int64_t> ids,
                       int64_t epoch = 0, uint64_t seed = 0, Layout layout = Layout::contiguous) {
  std::vector<float> inputs(ids.size() * dataset.info().input_numel());
  std::vector<int64_t> targets(ids.size());
  PreparedTransforms::Scratch scratch;
  PreparedTransforms(transforms, dataset, seed)
      .read(dataset, epoch, ids, layout, inputs.data(), targets.data(), scratch);
  return inputs;
}

std::vector<float> plain(const Dataset& dataset, int64_t id) {
  return run({}, dataset, {id});
}

TEST(Transforms, TheTextFormComesBackAsTheSameValue) {
  for (const char* text : {"", "crop:4,flip:0.5,normalize", "shift:2,erase:0.25", "flip:0.1",
                           "normalize:0.5:0.25:0.1:0.2:0.3:0.4", "normalize:0.286:0.353"}) {
    const Transforms transforms = Transforms::parse(text);
    EXPECT_EQ(transforms.to_string(), text);
    EXPECT_EQ(Transforms::parse(transforms.to_string()), transforms);
  }
  EXPECT_EQ(Transforms::parse("crop:4,flip,normalize"), Transforms({RandomCrop{4}, RandomFlip{}, Normalize{}}));
  EXPECT_TRUE(Transforms::parse("none").empty());
}

TEST(Transforms, AnUnknownStepListsWhatThereIs) {
  for (const char* text : {"blur", "crop", "crop:x", "crop:1:2", "flip:2", "flip,,crop:1", "normalize:1", "crop:-1",
                           "normalize:0:0", "normalize,normalize"})
    EXPECT_NE(error_of([&] { Transforms::parse(text); }), "no error") << text;
  EXPECT_THAT(error_of([] { Transforms::parse("blur"); }), HasSubstr("got 'blur', expected crop:PIXELS"));
}

TEST(Transforms, EveryWayThroughTheDataGivesAnExampleTheSameBits) {
  const auto dataset = pixels(20);
  const Transforms transforms = Transforms::parse("crop:2,flip,shift:1,erase:0.7,normalize:100:50:30:20");
  const auto together = run(transforms, *dataset, {3, 7, 11, 3}, 4, 9);
  for (const size_t row : {0u, 1u, 2u, 3u}) {
    const std::vector<int64_t> ids{3, 7, 11, 3};
    const auto alone = run(transforms, *dataset, {ids[row]}, 4, 9);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + row * 2 * kArea)) << row;
  }
  EXPECT_NE(run(transforms, *dataset, {3, 7, 11, 3}, 5, 9), together) << "another epoch";
  EXPECT_NE(run(transforms, *dataset, {3, 7, 11, 3}, 4, 10), together) << "another seed";
  const auto last = run(transforms, *dataset, {3}, 4, 9, Layout::channels_last);
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t i = 0; i < kArea; ++i) EXPECT_EQ(last[i * 2 + c], together[c * kArea + i]);
}

// Crop and shift as they are defined: some (dy, dx) of the allowed ones explains the picture.
bool is_moved(const std::vector<float>& got, const std::vector<float>& image, int64_t dy, int64_t dx, bool repeats) {
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t y = 0; y < kHeight; ++y)
      for (int64_t x = 0; x < kWidth; ++x) {
        int64_t v = y + dy, u = x + dx;
        if (repeats) {
          v = std::clamp<int64_t>(v, 0, kHeight - 1);
          u = std::clamp<int64_t>(u, 0, kWidth - 1);
        }
        const bool inside = 0 <= v && v < kHeight && 0 <= u && u < kWidth;
        if (got[c * kArea + y * kWidth + x] != (inside ? image[c * kArea + v * kWidth + u] : 0.0f)) return false;
      }
  return true;
}

void expect_all_moves(const Transforms& transforms, int64_t most, bool repeats) {
  const auto dataset = pixels(400);
  std::set<std::pair<int64_t, int64_t>> seen;
  for (int64_t id = 0; id < 400; ++id) {
    const auto got = run(transforms, *dataset, {id}), image = plain(*dataset, id);
    bool explained = false;
    for (int64_t dy = -most; dy <= most && !explained; ++dy)
      for (int64_t dx = -most; dx <= most && !explained; ++dx)
        if (is_moved(got, image, dy, dx, repeats)) explained = seen.insert({dy, dx}).second || true;
    ASSERT_TRUE(explained) << id;
  }
  EXPECT_EQ(seen.size(), (2 * most + 1) * (2 * most + 1)) << "each move occurs";
}

TEST(Transforms, CropMovesTheImageAndFillsWithBlack) {
  expect_all_moves(Transforms({RandomCrop{2}}), 2, false);
}

TEST(Transforms, CropMayMoveTheImageOutOfSight) {
  const auto dataset = pixels(50);
  const auto got = run(Transforms({RandomCrop{40}}), *dataset, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_GT(std::ranges::count(got, 0.0f), 10 * kArea);
}

TEST(Transforms, ShiftMovesTheImageAndRepeatsItsBorder) {
  expect_all_moves(Transforms({RandomShift{1}}), 1, true);
}

TEST(Transforms, FlipTurnsAboutHalfOfTheImages) {
  const auto dataset = pixels(400);
  int flipped = 0;
  for (int64_t id = 0; id < 400; ++id) {
    const auto image = plain(*dataset, id), got = run(Transforms({RandomFlip{}}), *dataset, {id});
    auto turned = image;
    for (int64_t row = 0; row < 2 * kHeight; ++row)
      std::reverse(turned.begin() + row * kWidth, turned.begin() + (row + 1) * kWidth);
    ASSERT_TRUE(got == image || got == turned);
    flipped += got == turned;
  }
  EXPECT_NEAR(flipped, 200, 50);
  EXPECT_EQ(run(Transforms({RandomFlip{0}}), *dataset, {1}), plain(*dataset, 1));
}

TEST(Transforms, EraseBlackensOneRectangleOfEveryChannel) {
  const auto dataset = pixels(200);
  for (int64_t id = 0; id < 200; ++id) {
    const auto got = run(Transforms({RandomErase{1}}), *dataset, {id}), image = plain(*dataset, id);
    int64_t top = kHeight, bottom = -1, left = kWidth, right = -1, erased = 0;
    for (int64_t i = 0; i < kArea; ++i) {
      ASSERT_EQ(got[i] == 0, got[kArea + i] == 0);
      if (got[i] != 0) {
        ASSERT_EQ(got[i], image[i]);
        continue;
      }
      ++erased;
      top = std::min(top, i / kWidth), bottom = std::max(bottom, i / kWidth);
      left = std::min(left, i % kWidth), right = std::max(right, i % kWidth);
    }
    ASSERT_GE(erased, 1);
    ASSERT_EQ(erased, (bottom - top + 1) * (right - left + 1));
  }
}

TEST(Transforms, NormalizeIsDoneOnceWhereverItStands) {
  const auto dataset = pixels(30);
  const std::vector<int64_t> ids{0, 5, 29};
  const std::string figures = "normalize:100:200:30:20";
  const auto before = run(Transforms::parse("crop:2," + figures), *dataset, ids);
  const auto moved = run(Transforms::parse("crop:2"), *dataset, ids);
  for (size_t i = 0; i < moved.size(); ++i) {
    const bool second = i / kArea % 2 == 1;
    const float scale = 1.0f / (second ? 20.0f : 30.0f), scaled = moved[i] * scale;
    EXPECT_EQ(before[i], scaled + -(second ? 200.0f : 100.0f) * scale) << "black was there before it was normalised";
  }
  const auto after = run(Transforms::parse(figures + ",crop:2"), *dataset, ids);
  for (size_t i = 0; i < moved.size(); ++i) EXPECT_EQ(after[i], moved[i] == 0 ? 0 : before[i]);
}

TEST(Transforms, NormalizeWithoutFiguresTakesThoseOfTheData) {
  const auto dataset = pixels(30);
  EXPECT_EQ(run(Transforms::parse("normalize"), *dataset, {4}),
            run(Transforms({Normalize{dataset->normalization()}}), *dataset, {4}));
  EXPECT_EQ(Transforms::parse("crop:1,normalize").with({{1}, {2}}).to_string(), "crop:1,normalize:1:2");
  EXPECT_EQ(Transforms::parse("crop:1,normalize,flip").deterministic().to_string(), "normalize");
}

TEST(Transforms, AFunctionOfOnesOwnSeesWhatCameBeforeItAndItsOwnKey) {
  const auto dataset = pixels(30);
  std::set<std::pair<uint64_t, uint64_t>> keys;
  const Custom add_one{"add_one", [&](std::span<float> values, std::span<const int64_t> shape, RandomKey key) {
                         EXPECT_EQ(shape.size(), 3u);
                         keys.insert({key.seed, key.stream});
                         for (float& value : values) value += 1;
                       }};
  const Normalize halves{{{1, 1}, {2, 2}}};
  const auto got = run(Transforms({add_one, halves, add_one}), *dataset, {7, 8});
  for (size_t i = 0; i < got.size(); ++i) {
    const float value = static_cast<float>(7 * 2 * kArea + static_cast<int64_t>(i) + 1);
    EXPECT_EQ(got[i], (value + 1) * 0.5f - 0.5f + 1);
  }
  EXPECT_EQ(keys.size(), 4u) << "one for each example and place";
}

TEST(Transforms, InputsThatAreNoImagesCanOnlyBeNormalized) {
  const auto rows = make_dataset("rows", at::arange(6, at::kFloat).view({2, 3}), at::zeros({2}, at::kLong));
  EXPECT_EQ(run(Transforms::parse("normalize:1:2"), *rows, {1}), (std::vector<float>{1, 1.5, 2}));
  EXPECT_THAT(error_of([&] { run(Transforms::parse("flip"), *rows, {1}); }), HasSubstr("expected [C, H, W]"));
  EXPECT_THAT(error_of([&] { run(Transforms::parse("normalize:1:2"), *pixels(2), {1}); }),
              HasSubstr("1 channels, expected 2"));
  const auto maps = make_dataset("maps", at::zeros({2, 1, 4, 4}), at::zeros({2, 4, 4}, at::kLong));
  EXPECT_THAT(error_of([&] { run(Transforms::parse("flip"), *maps, {1}); }), HasSubstr("targets of their own"));
}

}  // namespace
}  // namespace lockstep::data
