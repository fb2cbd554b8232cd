// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Small pictures: inputs that a network saw, and what a chart is painted on.
namespace lockstep::run {

using Rgb = std::array<uint8_t, 3>;

/// Bytes in rows from the top, interleaved: `pixels` is [height, width, channels].
struct Image {
  int width = 0;
  int height = 0;
  int channels = 1;  // 1 grey, 3 red green blue, 4 with alpha
  std::vector<uint8_t> pixels = {};

  bool operator==(const Image&) const = default;
};

/// The bytes of a PNG file; equal images give equal bytes. Throws Error when the pixels don't fit the size.
std::string encode_png(const Image& image);

/// Throws Error, naming `where`, when the bytes are no PNG of at most 4096 x 4096. 16 bits become 8, palettes colours.
Image decode_png(std::string_view bytes, const std::string& where);

/// RFC 4648, with padding.
std::string base64(std::string_view bytes);
/// The inverse. Throws Error, naming `where`, on anything else.
std::string from_base64(std::string_view text, const std::string& where);

}  // namespace lockstep::run
