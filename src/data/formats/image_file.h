// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "data/formats/file.h"

namespace lockstep::data {

/// 8-bit RGB, [height, width, 3].
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
};

/// A PNG or JPEG file, told apart by its first bytes. Pixels are those of Pillow's convert("RGB"): transparency, gamma
/// and profiles are not looked at, and CMYK is taken as Adobe writes it, inverted; but grey of 16 bits is scaled to 8,
/// which Pillow cuts off at 255. Throws Error that names the file and, where it is known, the offset, also for a
/// truncated file of which a part could be shown.
Image read_image(const fs::path& path);

/// Scales the image so that its shorter side is `size` (a triangle filter over the pixels that a new one covers, in
/// whole numbers: the same bytes everywhere), takes the middle square, and writes it channel after channel, [3, size,
/// size].
void resize_and_crop(const Image& image, int64_t size, uint8_t* out);

namespace detail {
Image decode_png(const fs::path& path, const std::vector<uint8_t>& bytes);
Image decode_jpeg(const fs::path& path, const std::vector<uint8_t>& bytes);
}  // namespace detail

}  // namespace lockstep::data
