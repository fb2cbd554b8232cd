// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "lockstep/pictures/image.h"

namespace lockstep::pictures {

/// A PNG or JPEG file in RGB, told apart by its first bytes. Pixels are those of Pillow's convert("RGB"): transparency,
/// gamma and profiles are not looked at; but grey of 16 bits is scaled to 8, which Pillow cuts off at 255. Throws Error
/// that names the file and, where it is known, the offset.
Image read_image(const std::filesystem::path& path);

}  // namespace lockstep::pictures
