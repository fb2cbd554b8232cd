// SPDX-License-Identifier: Apache-2.0
// clang-format off
#include <cstdio>
#include <jpeglib.h>  // after <cstdio>, which it needs
// clang-format on
#include <gmock/gmock.h>
#include <png.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "data/formats/image_file.h"
#include "lockstep/data/dataset.h"
#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A smooth picture with an edge in it.
Image picture(int64_t height, int64_t width) {
  Image image{height, width, Bytes(height * width * 3)};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        image.pixels[(y * width + x) * 3 + c] = static_cast<uint8_t>(c == 0   ? y * 255 / height
                                                                     : c == 1 ? x * 255 / width
                                                                     : x > y  ? 200
                                                                              : 40);
  return image;
}

Bytes png_of(const Image& image, png_uint_32 format = PNG_FORMAT_RGB) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = format;
  png_alloc_size_t size = 0;
  EXPECT_TRUE(png_image_write_to_memory(&png, nullptr, &size, 0, image.pixels.data(), 0, nullptr));
  Bytes bytes(size);
  EXPECT_TRUE(png_image_write_to_memory(&png, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr));
  bytes.resize(size);
  return bytes;
}

/// With one more chunk behind the header.
Bytes with_chunk(const Bytes& png, std::string chunk) {
  const auto put = [](Bytes& out, uint64_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
  };
  constexpr size_t kSignatureAndHeader = 33;
  Bytes out = first(png, kSignatureAndHeader);
  put(out, chunk.size() - 4);
  out.insert(out.end(), chunk.begin(), chunk.end());
  put(out, crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size())));
  out.insert(out.end(), png.begin() + kSignatureAndHeader, png.end());
  return out;
}

/// RGB, or inverted CMYK.
Bytes jpeg_of(const Image& image, J_COLOR_SPACE in = JCS_RGB, J_COLOR_SPACE saved = JCS_YCbCr) {
  const int components = in == JCS_CMYK ? 4 : 3;
  jpeg_compress_struct state{};
  jpeg_error_mgr errors{};
  state.err = jpeg_std_error(&errors);
  jpeg_create_compress(&state);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&state, &buffer, &size);
  state.image_width = static_cast<JDIMENSION>(image.width);
  state.image_height = static_cast<JDIMENSION>(image.height);
  state.input_components = components;
  state.in_color_space = in;
  jpeg_set_defaults(&state);
  jpeg_set_colorspace(&state, saved);
  jpeg_set_quality(&state, 95, TRUE);
  jpeg_start_compress(&state, TRUE);
  Bytes pixels = image.pixels;
  while (state.next_scanline < state.image_height) {
    JSAMPROW row = pixels.data() + size_t{state.next_scanline} * image.width * components;
    jpeg_write_scanlines(&state, &row, 1);
  }
  jpeg_finish_compress(&state);
  Bytes bytes(buffer, buffer + size);
  jpeg_destroy_compress(&state);
  std::free(buffer);
  return bytes;
}

TEST(ReadImage, APngComesBackAsItWas) {
  const TemporaryFolder folder;
  const Image image = picture(13, 17);
  folder.write("a.png", png_of(image));
  const Image got = read_image(folder / "a.png");
  EXPECT_EQ(got.height, 13);
  EXPECT_EQ(got.width, 17);
  EXPECT_EQ(got.pixels, image.pixels);
}

TEST(ReadImage, GreyBecomesThreeEqualChannelsAndTransparencyIsNotLookedAt) {
  const TemporaryFolder folder;
  folder.write("grey.png", png_of({1, 2, {10, 200}}, PNG_FORMAT_GRAY));
  EXPECT_THAT(read_image(folder / "grey.png").pixels, ElementsAre(10, 10, 10, 200, 200, 200));
  folder.write("clear.png", png_of({1, 2, {9, 8, 7, 255, 9, 8, 7, 0}}, PNG_FORMAT_RGBA));
  EXPECT_THAT(read_image(folder / "clear.png").pixels, ElementsAre(9, 8, 7, 9, 8, 7));
}

TEST(ReadImage, SixteenBitsAreScaledToEight) {
  const TemporaryFolder folder;
  folder.write("grey.png", png_of({1, 3, {0, 0x80, 0xff, 0xff, 0, 0x10}}, PNG_FORMAT_LINEAR_Y));  // with a gAMA of 1
  EXPECT_THAT(read_image(folder / "grey.png").pixels, ElementsAre(128, 128, 128, 255, 255, 255, 16, 16, 16));
}

/// Pillow does not look at them, and a date that is none is no broken picture.
TEST(ReadImage, ChunksThatAPngCouldDoWithoutChangeNothing) {
  const TemporaryFolder folder;
  const Image image = picture(5, 4);
  const std::string zeros(32, '\0');
  for (const std::string& chunk :
       {std::string("gAMA\0\1\x86\xA0", 8), "tIME\x07\xd0\x0d\x20" + zeros.substr(0, 3), "bKGD" + zeros.substr(0, 1),
        "cHRM" + zeros, "sBIT\x10" + std::string("\x08\x08"), "iCCPICC" + zeros.substr(0, 2) + "junk",
        "tRNS" + zeros.substr(0, 4) + std::string("\0\x28", 2)}) {
    folder.write("a.png", with_chunk(png_of(image), chunk));
    EXPECT_EQ(read_image(folder / "a.png").pixels, image.pixels) << chunk.substr(0, 4);
  }
}

/// RGB of inverted CMYK is c k / 255.
TEST(ReadImage, CmykBecomesRgb) {
  const TemporaryFolder folder;
  Image image{16, 16, {}};
  for (int i = 0; i < 256; ++i) image.pixels.insert(image.pixels.end(), {245, 135, 55, 225});
  for (const J_COLOR_SPACE saved : {JCS_CMYK, JCS_YCCK}) {
    folder.write("a.jpg", jpeg_of(image, JCS_CMYK, saved));
    const Image got = read_image(folder / "a.jpg");
    ASSERT_EQ(got.pixels.size(), 768);
    for (size_t i = 0; i < got.pixels.size(); ++i)
      EXPECT_NEAR(got.pixels[i], image.pixels[i % 3] * 225 / 255.0, 4) << "channel " << i % 3;
  }
}

TEST(ReadImage, BytesTooManyBeforeAJpegsEndCostNoPixel) {
  const TemporaryFolder folder;
  Bytes bytes = jpeg_of(picture(16, 16));
  folder.write("a.jpg", bytes);
  const Image whole = read_image(folder / "a.jpg");
  bytes.insert(bytes.end() - 2, 64, uint8_t{1});  // more than are read ahead
  folder.write("a.jpg", bytes);
  EXPECT_EQ(read_image(folder / "a.jpg").pixels, whole.pixels);
}

TEST(ReadImage, TakesPipesAndSaysWhatAFolderIs) {
  const TemporaryFolder folder;
  const Image image = picture(200, 200);  // more than a pipe holds
  const Bytes bytes = png_of(image, PNG_FORMAT_RGB);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { folder.write("pipe", bytes); });
  const Image got = read_image(folder / "pipe");
  writer.join();
  EXPECT_EQ(got.pixels, image.pixels);
  EXPECT_THAT(error_of([&] { read_image(folder.path()); }), HasSubstr("is a folder, expected a file"));
}

TEST(ReadImage, AJpegIsCloseToWhatItWas) {
  const TemporaryFolder folder;
  const Image image = picture(48, 32);
  folder.write("a.jpg", jpeg_of(image));
  const Image got = read_image(folder / "a.jpg");
  ASSERT_EQ(got.pixels.size(), image.pixels.size());
  double error = 0;
  for (size_t i = 0; i < got.pixels.size(); ++i) error += std::abs(int{got.pixels[i]} - int{image.pixels[i]});
  EXPECT_LT(error / static_cast<double>(got.pixels.size()), 12);
}

TEST(ReadImage, EveryTruncationNamesTheFileAndAnOffset) {
  const TemporaryFolder folder;
  const Image image = picture(20, 20);
  for (const auto& [name, whole] : {std::pair{"a.png", png_of(image)}, std::pair{"a.jpg", jpeg_of(image)}})
    for (size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 37) {
      folder.write(name, first(whole, size));
      EXPECT_THAT(error_of([&, path = folder / name] { read_image(path); }),
                  AllOf(HasSubstr(name), HasSubstr("offset")))
          << name << " of " << size << " bytes";
    }
}

TEST(ReadImage, EveryChangedByteOfAPngIsAnError) {
  const TemporaryFolder folder;
  const Bytes whole = png_of(picture(9, 9));
  for (size_t at = 0; at < whole.size(); ++at) {
    Bytes changed = whole;
    changed[at] ^= 0x10;
    folder.write("a.png", changed);
    EXPECT_THAT(error_of([&] { read_image(folder / "a.png"); }), HasSubstr("a.png, offset")) << at;
  }
}

TEST(ReadImage, WhatIsNoImageIsAnError) {
  const TemporaryFolder folder;
  folder.write("a.png", {'G', 'I', 'F', '8', '9', 'a'});
  EXPECT_THAT(error_of([&] { read_image(folder / "a.png"); }), HasSubstr("offset 0: no PNG or JPEG signature"));
}

// The definition: a triangle as wide as a new pixel, or as an old one where the image grows, around the new one's
// place.
double definition(const Image& image, int64_t size, int64_t y, int64_t x, int64_t c) {
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
    const Image image = picture(height, width);
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
  const Image image = picture(6, 6);
  Bytes out(108);
  resize_and_crop(image, 6, out.data());
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < 36; ++i) EXPECT_EQ(out[c * 36 + i], image.pixels[i * 3 + c]);
}

class ImageFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("train/cat/b.png", png_of(picture(10, 12)));
    folder_.write("train/cat/a.JPG", jpeg_of(picture(16, 9)));
    folder_.write("train/dog/c.png", png_of(picture(8, 8)));
    folder_.write("train/dog/notes.txt", {'x'});
    folder_.write("val/dog/d.png", png_of(picture(9, 9)));
  }
  const TemporaryFolder folder_;
};

TEST_F(ImageFolder, IsSortedByNameAndClassesAreThoseOfTheTrainingSet) {
  for (const std::string& spec : {"images:" + folder_.path().string(), folder_.path().string()}) {
    const auto train = open_dataset(spec, Split::train, {.image_size = 8});
    EXPECT_THAT(train->info().class_names, ElementsAre("cat", "dog"));
    EXPECT_THAT(train->info().input_shape, ElementsAre(3, 8, 8));
    EXPECT_THAT(train->targets(), ElementsAre(0, 0, 1));
    const auto test = open_dataset(spec, Split::test, {.image_size = 8});
    EXPECT_THAT(test->targets(), ElementsAre(1));
  }
}

TEST_F(ImageFolder, HasTheSameBytesWithAndWithoutACache) {
  const auto kept = open_dataset("images:" + folder_.path().string(), Split::train, {.image_size = 8});
  const auto read_anew =
      open_dataset("images:" + folder_.path().string(), Split::train, {.image_size = 8, .cache_bytes = 0});
  std::vector<float> a(2 * 192), b(2 * 192);
  std::vector<int64_t> targets(2);
  const std::vector<int64_t> ids{2, 0};
  for (int round = 0; round < 2; ++round) {
    kept->read(ids, a.data(), targets.data());
    read_anew->read(ids, b.data(), targets.data());
    EXPECT_EQ(a, b);
  }
  Bytes expected(192);
  resize_and_crop(picture(8, 8), 8, expected.data());
  for (int i = 0; i < 192; ++i) EXPECT_EQ(a[i], static_cast<float>(expected[i]) / 255.0f);
  EXPECT_EQ(kept->normalization(), read_anew->normalization());
}

TEST_F(ImageFolder, ABrokenFileIsNamedWhenItIsRead) {
  folder_.write("train/cat/b.png", first(png_of(picture(10, 12)), 50));
  const auto dataset = open_dataset("images:" + folder_.path().string(), Split::train, {.image_size = 8});
  std::vector<float> input(192);
  int64_t target = 0;
  const std::vector<int64_t> ids{1};
  EXPECT_THAT(error_of([&] { dataset->read(ids, input.data(), &target); }), HasSubstr("train/cat/b.png, offset"));
}

TEST_F(ImageFolder, MissingAndUnknownFoldersAreErrors) {
  folder_.write("val/bird/e.png", png_of(picture(9, 9)));
  EXPECT_THAT(error_of([&] { open_dataset("images:" + folder_.path().string(), Split::test); }),
              HasSubstr("val/bird is no class of"));
  std::filesystem::remove_all(folder_ / "val");
  EXPECT_THAT(error_of([&] { open_dataset("images:" + folder_.path().string(), Split::test); }),
              HasSubstr("has a folder train and none for test"));
  EXPECT_EQ(open_dataset("images:" + (folder_ / "train").string(), Split::test, {.image_size = 4})->size(), 3);
}

}  // namespace
}  // namespace lockstep::data
