// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lockstep/pictures/image.h"

namespace lockstep::pictures {

/// The picture in these bytes, in RGB. CMYK is taken as Adobe writes it, inverted. Throws Error, naming `where` and the
/// offset, when the bytes are no whole JPEG, also for a truncated one of which a part could be shown.
Image decode_jpeg(std::string_view bytes, const std::string& where);

}  // namespace lockstep::pictures
