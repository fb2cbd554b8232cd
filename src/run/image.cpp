// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/image.h"

#include <png.h>

#include <array>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::run {
namespace {

constexpr png_uint_32 largest_side = 4096;
constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

png_uint_32 format_of(int channels) {
  return channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
}

// libpng's own memory, freed on every way out.
struct Png {
  png_image image = {};
  Png() { image.version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(&image); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
};

}  // namespace

std::string encode_png(const Image& image) {
  require(image.channels == 1 || image.channels == 3 || image.channels == 4, "encode_png", "image has ", image.channels,
          " channels, expected 1, 3 or 4");
  require(image.width > 0 && image.height > 0 && image.width <= static_cast<int>(largest_side) &&
              image.height <= static_cast<int>(largest_side),
          "encode_png", "image is ", image.width, " x ", image.height, ", expected 1 x 1 to 4096 x 4096");
  const size_t bytes = static_cast<size_t>(image.width) * image.height * image.channels;
  require(image.pixels.size() == bytes, "encode_png", "image holds ", image.pixels.size(), " bytes, expected ", bytes,
          " for ", image.width, " x ", image.height, " x ", image.channels);
  Png png;
  png.image.width = image.width;
  png.image.height = image.height;
  png.image.format = format_of(image.channels);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png.image);
  std::string out(size, '\0');
  const bool done = png_image_write_to_memory(&png.image, out.data(), &size, 0, image.pixels.data(), 0, nullptr) != 0;
  require(done, "encode_png", png.image.message);
  out.resize(size);
  return out;
}

Image decode_png(std::string_view bytes, const std::string& where) {
  Png png;
  require(png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) != 0, "decode_png", where, ": ",
          png.image.message, ", expected a PNG");
  require(png.image.width <= largest_side && png.image.height <= largest_side, "decode_png", where, ": picture is ",
          png.image.width, " x ", png.image.height, ", expected at most 4096 x 4096");
  const bool alpha = (png.image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  const bool color = (png.image.format & PNG_FORMAT_FLAG_COLOR) != 0;
  Image image{static_cast<int>(png.image.width), static_cast<int>(png.image.height), alpha ? 4 : color ? 3 : 1};
  png.image.format = format_of(image.channels);
  image.pixels.resize(PNG_IMAGE_SIZE(png.image));
  require(png_image_finish_read(&png.image, nullptr, image.pixels.data(), 0, nullptr) != 0, "decode_png", where, ": ",
          png.image.message);
  return image;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const auto byte = [&](size_t i) -> uint32_t {
      return at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0;
    };
    const uint32_t group = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (size_t i = 0; i < 4; ++i) out += at + i <= bytes.size() ? digits[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

std::string from_base64(std::string_view text, const std::string& where) {
  require(text.size() % 4 == 0, "from_base64", where, ": ", text.size(), " characters, expected a multiple of 4");
  std::string_view digit = text;
  while (digit.size() + 2 > text.size() && !digit.empty() && digit.back() == '=') digit.remove_suffix(1);
  std::string out;
  out.reserve(digit.size() * 3 / 4);
  uint32_t group = 0;
  for (size_t i = 0; i < digit.size(); ++i) {
    const size_t value = digits.find(digit[i]);
    require(value != std::string_view::npos, "from_base64", where, ": character ", i, " is no digit of base64");
    group = group << 6 | static_cast<uint32_t>(value);
    if (i % 4 != 0) out += static_cast<char>(group >> (6 - 2 * (i % 4)) & 255);
  }
  return out;
}

}  // namespace lockstep::run
