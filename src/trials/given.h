// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/run/config.h"

namespace lockstep::trials {

/// Whether somebody has set a value of a configuration: it is named, or it is not the usual one.
inline bool is_set(run::Config config, const std::vector<std::string>& given, std::string_view name) {
  run::Config usual;
  const auto value_in = [name](run::Config& any) {
    const auto fields = run::fields_of(any);
    return run::value_text(
        *std::ranges::find(fields, name, [](const auto& field) { return std::string_view(field.name); }));
  };
  return std::ranges::count(given, name) > 0 || value_in(config) != value_in(usual);
}

}  // namespace lockstep::trials
