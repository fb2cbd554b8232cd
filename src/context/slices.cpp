// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/slices.h"

#include <ATen/ops/cat.h>

#include "lockstep/numerics/tree.h"

namespace lockstep {

at::Tensor narrowed(const at::Tensor& whole, int64_t dim, Interval part) {
  return whole.defined() ? whole.narrow(dim, part.begin, part.size()) : whole;
}

LayerGradients join(const std::vector<LayerGradients>& parts, int64_t dim) {
  std::vector<at::Tensor> inputs, weights, biases;
  for (const auto& [input, weight, bias] : parts) {
    inputs.push_back(input);
    weights.push_back(weight);
    biases.push_back(bias);
  }
  const auto joined = [](const std::vector<at::Tensor>& of, int64_t along) {
    return of[0].defined() ? at::cat(of, along) : at::Tensor();
  };
  at::Tensor input;
  if (inputs[0].defined())
    input = merge_as_tree(
        static_cast<int64_t>(inputs.size()), [&](int64_t slice) { return inputs[slice]; },
        [](at::Tensor& left, const at::Tensor& right) { left = left.add(right); });
  return {input, joined(weights, dim), joined(biases, 0)};
}

}  // namespace lockstep
