// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::report {

/// How often a part occurs in a text.
inline int occurrences(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

}  // namespace lockstep::report
