// SPDX-License-Identifier: Apache-2.0
// libpng's simplified interface knows no offsets. So the chunks are gone through first: each has a length, a type, its
// data and a CRC, and what is truncated or was changed is found at its place. Pixels are those of Pillow's
// convert("RGB"): it looks at the chunks alone without which there is no picture, not at gamma, profiles or the colour
// that is transparent, so libpng is shown no others. A wrong date or background is no broken picture, either.
#include "lockstep/pictures/png.h"

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "lockstep/base/error.h"

namespace lockstep::pictures {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
constexpr size_t kChunkOverhead = 12;
constexpr int kLargestSide = 4096;

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

uint32_t big_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

[[noreturn]] void fail_chunk(const std::string& where, size_t offset, const std::string& message) {
  fail("decode_png", where, ", offset ", offset, ": ", message, "; copy or download it again");
}

/// The file without the chunks that it could do without: those of a lower-case first letter.
std::string critical_chunks(std::string_view bytes, const std::string& where) {
  constexpr uint8_t kAncillary = 0x20;
  if (!bytes.starts_with(kSignature)) fail_chunk(where, 0, "no PNG signature");
  std::string kept(kSignature);
  for (size_t at = kSignature.size();;) {
    if (bytes.size() - at < kChunkOverhead)
      fail_chunk(where, at,
                 text("the file ends after ", bytes.size(), " bytes, expected another chunk of the PNG file"));
    const uint32_t length = big_endian(bytes.substr(at));
    const std::string_view type = bytes.substr(at + 4, 4);
    if (!std::ranges::all_of(type, [](unsigned char c) { return std::isalpha(c) != 0; }))
      fail_chunk(where, at, "no name of four letters, expected another chunk of the PNG file");
    if (bytes.size() - at - kChunkOverhead < length)
      fail_chunk(where, at,
                 text("the file ends after ", bytes.size(), " bytes, expected a chunk ", type, " of ", length));
    const uint32_t stored = big_endian(bytes.substr(at + 8 + length));
    const auto computed = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(type.data()), length + 4));
    if (stored != computed) fail_chunk(where, at, text("chunk ", type, " does not match its checksum"));
    if ((type[0] & kAncillary) == 0) kept += bytes.substr(at, kChunkOverhead + length);
    at += kChunkOverhead + length;
    if (type == "IEND") return kept;
  }
}

}  // namespace

std::string encode_png(const Image& image) {
  require(image.channels == 1 || image.channels == 3 || image.channels == 4, "encode_png", "image has ", image.channels,
          " channels, expected 1, 3 or 4");
  require(image.width > 0 && image.height > 0 && image.width <= static_cast<int>(kLargestSide) &&
              image.height <= static_cast<int>(kLargestSide),
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

Image decode_png(std::string_view whole, const std::string& where, int largest_side) {
  const std::string bytes = critical_chunks(whole, where);
  Png png;
  const auto check = [&](int good) {
    require(good != 0, "decode_png", where, ": libpng says '", png.image.message, "', expected a valid PNG file");
  };
  check(png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()));
  const auto largest = static_cast<png_uint_32>(largest_side);
  require(png.image.width <= largest && png.image.height <= largest, "decode_png", where, ": picture is ",
          png.image.width, " x ", png.image.height, ", expected at most ", largest, " x ", largest);
  const bool alpha = (png.image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  const bool color = (png.image.format & PNG_FORMAT_FLAG_COLOR) != 0;
  Image image{static_cast<int>(png.image.width), static_cast<int>(png.image.height), alpha ? 4 : color ? 3 : 1};
  png.image.format = format_of(image.channels);
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits too are no linear light
  image.pixels.resize(PNG_IMAGE_SIZE(png.image));
  check(png_image_finish_read(&png.image, /*background=*/nullptr, image.pixels.data(), 0, nullptr));
  return image;
}

}  // namespace lockstep::pictures
