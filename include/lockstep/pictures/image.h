// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep::pictures {

using Rgb = std::array<uint8_t, 3>;

/// Bytes in rows from the top, interleaved: `pixels` is [height, width, channels].
struct Image {
  int width = 0;
  int height = 0;
  int channels = 1;  ///< 1 grey, 3 red green blue, 4 with alpha
  std::vector<uint8_t> pixels = {};

  bool operator==(const Image&) const = default;
};

}  // namespace lockstep::pictures
