// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// RFC 4648, with padding.
std::string base64(std::string_view bytes);
/// The inverse. Throws Error, naming `where`, on anything else.
std::string from_base64(std::string_view text, const std::string& where);

}  // namespace lockstep
