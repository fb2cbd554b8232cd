// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/share_costs.h"

#include <utility>

#include "data/share_reader.h"

namespace lockstep::data {

std::vector<std::vector<int64_t>> share_costs(std::shared_ptr<const Dataset> dataset, const Order& order,
                                              const LoaderOptions& options, int64_t batches) {
  const auto reader = make_share_reader(std::move(dataset), order, options);
  std::vector<std::vector<int64_t>> costs;
  for (int64_t index = 0; index < batches; ++index) costs.push_back(reader->costs(index));
  return costs;
}

}  // namespace lockstep::data
