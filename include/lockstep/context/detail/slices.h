// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/numerics/placement.h"

namespace lockstep {

/// The fixed parts of a layer's output channels that are computed apart, on one device too: part of the recipe.
/// Sizes differ by at most one, and where there are fewer channels than slices some are empty. What is joined of all
/// slices lies in their order, and what is summed over them follows the tree: so the bits are the same whoever computes
/// which.
class Slices {
 public:
  /// Runs part(0) .. part(count - 1), at once where it can.
  using Run = std::function<void(int64_t count, const std::function<void(int64_t)>& part)>;

  /// `run`: on the devices that share the slices; empty: one after another.
  explicit Slices(int64_t count, Run run = {}) : count_(count), run_(std::move(run)) {}
  int64_t count() const { return count_; }

  /// What `part` makes of each slice of so many channels that is not empty, in order.
  template <class Part>
  auto each(int64_t channels, const Part& part) const {
    const Placement slices = Placement::even(channels, count_);
    std::vector<decltype(part(Interval{}))> made(std::min(channels, count_));
    const auto make = [&](int64_t slice) { made[slice] = part(slices.block(slice)); };
    if (run_)
      run_(static_cast<int64_t>(made.size()), make);
    else
      for (size_t slice = 0; slice < made.size(); ++slice) make(static_cast<int64_t>(slice));
    return made;
  }

 private:
  int64_t count_;
  Run run_;
};

/// The channels `part` of dimension `dim`.
at::Tensor narrowed(const at::Tensor& whole, int64_t dim, Interval part);

/// Of a layer's input, weight and bias; undefined where they are not asked for.
using LayerGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// What the slices found, as the whole layer's: the sum over slices in the tree's order for its input; its weight's
/// output channels are dimension `dim`.
LayerGradients join(const std::vector<LayerGradients>& parts, int64_t dim);

}  // namespace lockstep
