// SPDX-License-Identifier: Apache-2.0
#pragma once

// clang-format off
#include <cstdio>
#include <jpeglib.h>  // after <cstdio>, which it needs
// clang-format on

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/pictures/png.h"

/// Pictures, and the files that hold them.
namespace lockstep::pictures {

/// A smooth picture with an edge in it.
inline Image picture(int height, int width) {
  Image image{width, height, 3, std::vector<uint8_t>(height * width * 3)};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        image.pixels[(y * width + x) * 3 + c] = static_cast<uint8_t>(c == 0   ? y * 255 / height
                                                                     : c == 1 ? x * 255 / width
                                                                     : x > y  ? 200
                                                                              : 40);
  return image;
}

inline std::vector<uint8_t> png_of(const Image& image) {
  const std::string bytes = encode_png(image);
  return {bytes.begin(), bytes.end()};
}

/// RGB, or inverted CMYK.
inline std::vector<uint8_t> jpeg_of(const Image& image, J_COLOR_SPACE in = JCS_RGB, J_COLOR_SPACE saved = JCS_YCbCr) {
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
  std::vector<uint8_t> pixels = image.pixels;
  while (state.next_scanline < state.image_height) {
    JSAMPROW row = pixels.data() + size_t{state.next_scanline} * state.image_width * static_cast<size_t>(components);
    jpeg_write_scanlines(&state, &row, 1);
  }
  jpeg_finish_compress(&state);
  std::vector<uint8_t> bytes(buffer, buffer + size);
  jpeg_destroy_compress(&state);
  std::free(buffer);
  return bytes;
}

}  // namespace lockstep::pictures
