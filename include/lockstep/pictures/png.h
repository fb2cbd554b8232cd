// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <string_view>

#include "lockstep/pictures/image.h"

namespace lockstep::pictures {

/// The bytes of a PNG file; equal images give equal bytes. Throws Error when the pixels don't fit the size, or a side
/// is longer than 4096.
std::string encode_png(const Image& image);

/// The picture in these bytes, with the channels that it was saved with. Palettes become colours, and 16 bits are
/// scaled to 8. Transparent colours, gamma and profiles are not looked at. Throws Error, naming `where` and where it is
/// known the offset, when the bytes are no whole PNG or a side is longer than `largest_side`.
Image decode_png(std::string_view bytes, const std::string& where, int largest_side = std::numeric_limits<int>::max());

}  // namespace lockstep::pictures
