// SPDX-License-Identifier: Apache-2.0
// libpng's simplified interface knows no offsets. So the chunks are gone through first: each has a length, a type, its
// data and a CRC, and what is truncated or was changed is found at its place.
#include <png.h>
#include <zlib.h>

#include <cstring>
#include <string_view>

#include "data/image_file.h"

namespace lockstep::data {
namespace {

constexpr size_t kSignatureBytes = 8, kChunkOverhead = 12;

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

[[noreturn]] void fail_chunk(const fs::path& path, size_t offset, const std::string& message) {
  fail("read_image", path.string(), ", offset ", offset, ": ", message, "; copy or download it again");
}

void check_chunks(const fs::path& path, const std::vector<uint8_t>& bytes) {
  for (size_t at = kSignatureBytes;;) {
    if (bytes.size() - at < kChunkOverhead)
      fail_chunk(path, at,
                 text("the file ends after ", bytes.size(), " bytes, expected another chunk of the PNG file"));
    const uint32_t length = big_endian(&bytes[at]);
    const std::string_view type(reinterpret_cast<const char*>(&bytes[at + 4]), 4);
    if (bytes.size() - at - kChunkOverhead < length)
      fail_chunk(path, at,
                 text("the file ends after ", bytes.size(), " bytes, expected a chunk ", type, " of ", length));
    const uint32_t stored = big_endian(&bytes[at + 8 + length]);
    const auto computed = static_cast<uint32_t>(crc32(0, &bytes[at + 4], length + 4));
    if (stored != computed) fail_chunk(path, at, text("chunk ", type, " does not match its checksum"));
    if (type == "IEND") return;
    at += kChunkOverhead + length;
  }
}

}  // namespace

Image detail::decode_png(const fs::path& path, const std::vector<uint8_t>& bytes) {
  check_chunks(path, bytes);
  png_image png;
  std::memset(&png, 0, sizeof png);
  png.version = PNG_IMAGE_VERSION;
  Image image;
  bool good = png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) != 0;
  if (good) {
    png.format = PNG_FORMAT_RGB;
    image = {png.height, png.width, std::vector<uint8_t>(PNG_IMAGE_SIZE(png))};
    const png_color black{0, 0, 0};
    good = png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) != 0;
  }
  // A warning too is a broken file: what it shows is not what was saved.
  const std::string message = png.message;
  const bool warned = png.warning_or_error != 0;
  png_image_free(&png);
  require(good && !warned, "read_image", path.string(), ": libpng says '", message, "', expected a valid PNG file");
  return image;
}

}  // namespace lockstep::data
