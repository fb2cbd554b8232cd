// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/pictures/image.h"

namespace lockstep::data {

/// Scales the image, of three channels, so that its shorter side is `size` (a triangle filter over the pixels that a
/// new one covers, in whole numbers: the same bytes everywhere), takes the middle square, and writes it channel after
/// channel, [3, size, size].
void resize_and_crop(const pictures::Image& image, int64_t size, uint8_t* out);

}  // namespace lockstep::data
