// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>

#include "data/formats/resize.h"
#include "lockstep/data/dataset.h"
#include "support/files.h"
#include "support/image_files.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The definition: a triangle as wide as a new pixel, or as an old one where the image grows, around the new one's
// place.
double definition(const pictures::Image& image, int64_t size, int64_t y, int64_t x, int64_t c) {
  const int64_t shorter = std::min(image.height, image.width);
  const auto side = [&](int64_t old) { return std::max(size, (old * size + shorter / 2) / shorter); };
  const auto weight = [](int64_t from, int64_t to, int64_t target, int64_t source) {
    const double scale = static_cast<double>(from) / static_cast<double>(to), radius = std::max(scale, 1.0);
    return std::max(
        0.0, 1 - std::abs((static_cast<double>(target) + 0.5) * scale - (static_cast<double>(source) + 0.5)) / radius);
  };
  const int64_t height = side(image.height), width = side(image.width);
  double sum = 0, total = 0;
  for (int64_t v = 0; v < image.height; ++v)
    for (int64_t u = 0; u < image.width; ++u) {
      const double w = weight(image.height, height, y + (height - size) / 2, v) *
                       weight(image.width, width, x + (width - size) / 2, u);
      sum += w * image.pixels[(v * image.width + u) * 3 + c];
      total += w;
    }
  return sum / total;
}

TEST(ResizeAndCrop, IsTheMiddleOfTheScaledImageToWithinTwoRoundings) {
  for (const auto& [height, width, size] : {std::tuple{31, 20, 8}, {20, 31, 8}, {5, 7, 9}, {8, 8, 8}, {64, 16, 16}}) {
    const pictures::Image image = pictures::picture(height, width);
    Bytes out(3 * size * size);
    resize_and_crop(image, size, out.data());
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < size; ++y)
        for (int64_t x = 0; x < size; ++x)
          ASSERT_NEAR(out[(c * size + y) * size + x], definition(image, size, y, x, c), 1.1)
              << height << " x " << width << " to " << size;
  }
}

TEST(ResizeAndCrop, AnImageOfTheWantedSizeIsOnlyTurnedIntoPlanes) {
  const pictures::Image image = pictures::picture(6, 6);
  Bytes out(108);
  resize_and_crop(image, 6, out.data());
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < 36; ++i) EXPECT_EQ(out[c * 36 + i], image.pixels[i * 3 + c]);
}

class ImageFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("train/cat/b.png", pictures::png_of(pictures::picture(10, 12)));
    folder_.write("train/cat/a.JPG", pictures::jpeg_of(pictures::picture(16, 9)));
    folder_.write("train/dog/c.png", pictures::png_of(pictures::picture(8, 8)));
    folder_.write("train/dog/notes.txt", {'x'});
    folder_.write("val/dog/d.png", pictures::png_of(pictures::picture(9, 9)));
  }
  const TemporaryFolder folder_;
};

TEST_F(ImageFolder, IsSortedByNameAndClassesAreThoseOfTheTrainingSet) {
  for (const std::string& spec : {"images:" + folder_.path().string(), folder_.path().string()}) {
    const auto train = open_dataset(spec, Subset::train, {.image_size = 8});
    EXPECT_THAT(train->info().class_names, ElementsAre("cat", "dog"));
    EXPECT_THAT(train->info().input_shape, ElementsAre(3, 8, 8));
    EXPECT_THAT(train->targets(), ElementsAre(0, 0, 1));
    const auto test = open_dataset(spec, Subset::test, {.image_size = 8});
    EXPECT_THAT(test->targets(), ElementsAre(1));
  }
}

TEST_F(ImageFolder, HasTheSameBytesWithAndWithoutACache) {
  const auto kept = open_dataset("images:" + folder_.path().string(), Subset::train, {.image_size = 8});
  const auto read_anew =
      open_dataset("images:" + folder_.path().string(), Subset::train, {.image_size = 8, .cache_bytes = 0});
  std::vector<float> a(2 * 192), b(2 * 192);
  std::vector<int64_t> targets(2);
  const std::vector<int64_t> ids{2, 0};
  for (int round = 0; round < 2; ++round) {
    kept->read(ids, a.data(), targets.data());
    read_anew->read(ids, b.data(), targets.data());
    EXPECT_EQ(a, b);
  }
  Bytes expected(192);
  resize_and_crop(pictures::picture(8, 8), 8, expected.data());
  for (int i = 0; i < 192; ++i) EXPECT_EQ(a[i], static_cast<float>(expected[i]) / 255.0f);
  EXPECT_EQ(kept->normalization(), read_anew->normalization());
  Bytes bytes(2 * 192), last(2 * 192);
  EXPECT_TRUE(kept->holds_bytes());
  kept->read(ids, Layout::contiguous, bytes.data(), targets.data());
  read_anew->read(ids, Layout::channels_last, last.data(), targets.data());
  for (int i = 0; i < 2 * 192; ++i) {
    EXPECT_EQ(a[i], static_cast<float>(bytes[i]) / 255.0f);
    EXPECT_EQ(last[i / 192 * 192 + i % 64 * 3 + i % 192 / 64], bytes[i]);
  }
}

TEST_F(ImageFolder, ABrokenFileIsNamedWhenItIsRead) {
  folder_.write("train/cat/b.png", first(pictures::png_of(pictures::picture(10, 12)), 50));
  const auto dataset = open_dataset("images:" + folder_.path().string(), Subset::train, {.image_size = 8});
  std::vector<float> input(192);
  int64_t target = 0;
  const std::vector<int64_t> ids{1};
  EXPECT_THAT(error_of([&] { dataset->read(ids, input.data(), &target); }), HasSubstr("train/cat/b.png, offset"));
}

TEST_F(ImageFolder, MissingAndUnknownFoldersAreErrors) {
  folder_.write("val/bird/e.png", pictures::png_of(pictures::picture(9, 9)));
  EXPECT_THAT(error_of([&] { open_dataset("images:" + folder_.path().string(), Subset::test); }),
              HasSubstr("val/bird is no class of"));
  std::filesystem::remove_all(folder_ / "val");
  EXPECT_THAT(error_of([&] { open_dataset("images:" + folder_.path().string(), Subset::test); }),
              HasSubstr("has a folder train and none for test"));
  EXPECT_EQ(open_dataset("images:" + (folder_ / "train").string(), Subset::test, {.image_size = 4})->size(), 3);
}

}  // namespace
}  // namespace lockstep::data
