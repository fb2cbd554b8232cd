// SPDX-License-Identifier: Apache-2.0
#include "lockstep/pictures/read_image.h"

#include <gmock/gmock.h>
#include <png.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <utility>

#include "support/error_of.h"
#include "support/image_files.h"
#include "support/temporary_folder.h"

namespace lockstep::pictures {
namespace {

using test::error_of;
using test::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

Bytes first(const Bytes& bytes, size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Grey of 16 bits, [1, 3].
Bytes linear_grey_png() {
  const std::array<uint16_t, 3> pixels{0x8000, 0xffff, 0x1000};
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = 3;
  png.height = 1;
  png.format = PNG_FORMAT_LINEAR_Y;
  Bytes bytes(1000);
  png_alloc_size_t size = bytes.size();
  EXPECT_TRUE(png_image_write_to_memory(&png, bytes.data(), &size, 0, pixels.data(), 0, nullptr));
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
  folder.write("grey.png", png_of({2, 1, 1, {10, 200}}));
  EXPECT_THAT(read_image(folder / "grey.png").pixels, ElementsAre(10, 10, 10, 200, 200, 200));
  folder.write("clear.png", png_of({2, 1, 4, {9, 8, 7, 255, 9, 8, 7, 0}}));
  EXPECT_THAT(read_image(folder / "clear.png").pixels, ElementsAre(9, 8, 7, 9, 8, 7));
}

TEST(ReadImage, SixteenBitsAreScaledToEight) {
  const TemporaryFolder folder;
  folder.write("grey.png", linear_grey_png());  // with a gAMA of 1
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
  Image image{16, 16, 3};
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
  const Bytes bytes = png_of(image);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { folder.write("pipe", bytes); });
  const Image got = read_image(folder / "pipe");
  writer.join();
  EXPECT_EQ(got.pixels, image.pixels);
  EXPECT_THAT(error_of([&] { read_image(folder.path()); }), HasSubstr("is a folder, expected a file"));
}

// Its header alone would make a reader take gigabytes.
TEST(ReadImage, AJpegIsNoLargerThanItsBytesCanTell) {
  const TemporaryFolder folder;
  Bytes bytes = jpeg_of(picture(16, 16));
  const std::array<uint8_t, 2> frame{0xFF, 0xC0};
  const auto size =
      std::search(bytes.begin(), bytes.end(), frame.begin(), frame.end()) + 5;  // behind the length and the precision
  std::fill(size, size + 4, uint8_t{0xF0});
  folder.write("a.jpg", bytes);
  EXPECT_THAT(error_of([&] { read_image(folder / "a.jpg"); }), HasSubstr("61680 x 61680 pixels in "));
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

}  // namespace
}  // namespace lockstep::pictures
