// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep::report {

/// Text as it may stand in HTML and SVG, between tags and in quoted attributes: & < > " ' escaped, control characters
/// and bytes that are no UTF-8 replaced.
std::string escape(std::string_view text);

}  // namespace lockstep::report
