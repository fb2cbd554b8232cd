// SPDX-License-Identifier: Apache-2.0
// libpng's simplified interface knows no offsets. So the chunks are gone through first: each has a length, a type, its
// data and a CRC, and what is truncated or was changed is found at its place. Pixels are those of Pillow's
// convert("RGB"): it looks at the chunks alone without which there is no picture, not at gamma, profiles or the colour
// that is transparent, so libpng is shown no others. A wrong date or background is no broken picture, either.
#include <png.h>
#include <zlib.h>

#include <cstring>
#include <string_view>

#include "data/formats/image_file.h"

namespace lockstep::data {
namespace {

constexpr size_t kSignatureBytes = 8, kChunkOverhead = 12;

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

[[noreturn]] void fail_chunk(const fs::path& path, size_t offset, const std::string& message) {
  fail("read_image", path.string(), ", offset ", offset, ": ", message, "; copy or download it again");
}

/// The file without the chunks that it could do without: those of a lower-case first letter.
std::vector<uint8_t> critical_chunks(const fs::path& path, const std::vector<uint8_t>& bytes) {
  constexpr uint8_t kAncillary = 0x20;
  std::vector<uint8_t> kept(bytes.begin(), bytes.begin() + kSignatureBytes);
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
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    at += kChunkOverhead + length;
    if ((type[0] & kAncillary) == 0) kept.insert(kept.end(), begin, bytes.begin() + static_cast<std::ptrdiff_t>(at));
    if (type == "IEND") return kept;
  }
}

/// RGBA without A.
void drop_alpha(std::vector<uint8_t>& pixels) {
  size_t kept = 0;
  for (size_t i = 0; i < pixels.size(); ++i)
    if (i % 4 != 3) pixels[kept++] = pixels[i];
  pixels.resize(kept);
}

}  // namespace

Image detail::decode_png(const fs::path& path, const std::vector<uint8_t>& whole) {
  const std::vector<uint8_t> bytes = critical_chunks(path, whole);
  png_image png;
  std::memset(&png, 0, sizeof png);
  png.version = PNG_IMAGE_VERSION;
  Image image;
  bool good = png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) != 0;
  if (good) {
    const bool has_alpha = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
    png.format = has_alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
    png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits too are no linear light
    image = {png.height, png.width, std::vector<uint8_t>(PNG_IMAGE_SIZE(png))};
    good = png_image_finish_read(&png, /*background=*/nullptr, image.pixels.data(), 0, nullptr) != 0;
    if (has_alpha) drop_alpha(image.pixels);
  }
  const std::string message = png.message;
  png_image_free(&png);
  require(good, "read_image", path.string(), ": libpng says '", message, "', expected a valid PNG file");
  return image;
}

}  // namespace lockstep::data
