// SPDX-License-Identifier: Apache-2.0
#include "lockstep/pictures/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace lockstep::pictures {
namespace {

using test::error_of;

using testing::HasSubstr;

Image pattern(int width, int height, int channels) {
  Image image{width, height, channels};
  for (int i = 0; i < width * height * channels; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 37 + i / 7));
  if (channels == 4)
    for (size_t i = 3; i < image.pixels.size(); i += 4) image.pixels[i] = 255;
  return image;
}

TEST(Png, KeepsEveryPixel) {
  for (const int channels : {1, 3, 4})
    for (const auto& [width, height] : {std::pair{1, 1}, {28, 28}, {3, 50}}) {
      const Image image = pattern(width, height, channels);
      EXPECT_EQ(decode_png(encode_png(image), "test"), image) << width << " x " << height << " x " << channels;
    }
}

TEST(Png, RefusesAPictureThatIsLargerThanWanted) {
  const std::string bytes = encode_png(pattern(20, 10, 3));
  EXPECT_EQ(decode_png(bytes, "test", 20).width, 20);
  EXPECT_THAT(error_of([&] { decode_png(bytes, "test", 19); }), HasSubstr("20 x 10, expected at most 19 x 19"));
}

TEST(Png, RefusesWhatIsNoPicture) {
  EXPECT_THAT(error_of([] { encode_png({2, 2, 2, std::vector<uint8_t>(8)}); }), HasSubstr("2 channels, expected 1, 3"));
  EXPECT_THAT(error_of([] { encode_png({2, 2, 1, {0, 0, 0}}); }), HasSubstr("holds 3 bytes, expected 4 for 2 x 2 x 1"));
  EXPECT_THAT(error_of([] { encode_png({0, 2, 1}); }), HasSubstr("image is 0 x 2"));
  EXPECT_THAT(error_of([] { decode_png("not a png", "a.json"); }), HasSubstr("decode_png: a.json, offset "));
  const std::string whole = encode_png(pattern(20, 20, 3));
  EXPECT_THAT(error_of([&] { decode_png(std::string_view(whole).substr(0, whole.size() / 2), "a.json"); }),
              HasSubstr("decode_png: a.json, offset "));
}

}  // namespace
}  // namespace lockstep::pictures
