// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "support/files.h"

namespace lockstep::data {

struct Read {
  std::vector<float> inputs;
  std::vector<int64_t> targets;
};

inline Read read(const Dataset& dataset, const std::vector<int64_t>& ids, Layout layout = Layout::contiguous,
                 Affine affine = {}) {
  Read read{std::vector<float>(ids.size() * dataset.info().input_numel()),
            std::vector<int64_t>(ids.size() * dataset.info().target_numel())};
  dataset.read(ids, layout, affine, read.inputs.data(), read.targets.data());
  return read;
}

inline std::string open_error(const std::string& spec, Subset subset = Subset::train) {
  return error_of([&] { open_dataset(spec, subset); });
}

}  // namespace lockstep::data
