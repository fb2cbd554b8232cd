// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/formats/file.h"

namespace lockstep::data {

/// Reads a JSON file that is an array of objects and calls `row` for each with the texts that it has under `names`, in
/// that order. What is read lives for the call alone: tables of a gigabyte pass through. Throws Error, "FILE, offset
/// N: ...", for a file that is not JSON or no such array, and for an object without one of the names.
void read_json_table(const fs::path& file, const std::vector<std::string>& names,
                     const std::function<void(std::span<const std::string> values)>& row);

}  // namespace lockstep::data
