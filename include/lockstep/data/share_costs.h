// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/data/loader.h"

namespace lockstep::data {

/// What each replica's share of the first `batches` batches costs, [batch][replica]: how many examples it has, or of
/// clouds how many points. Nothing is read: the order is known. Throws Error as a Loader does.
std::vector<std::vector<int64_t>> share_costs(std::shared_ptr<const Dataset> dataset, const Order& order,
                                              const LoaderOptions& options, int64_t batches);

}  // namespace lockstep::data
