// SPDX-License-Identifier: Apache-2.0
// Tensors cut into shares and joined again.
#include "lockstep/parallel/scatter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "lockstep/numerics/placement.h"

namespace lockstep::parallel {

std::vector<at::Tensor> scatter_tensor(const at::Tensor& x, const Devices& devices, int64_t dim) {
  const auto replicas = static_cast<int64_t>(devices.size());
  std::vector<at::Tensor> shares;
  if (!x.defined()) return {devices.size(), x};
  require(x.dim() == 0 || (-x.dim() <= dim && dim < x.dim()), "scatter", "dim is ", dim, ", expected one of ",
          x.sizes());
  const Placement cut = Placement::even(x.dim() > 0 ? x.size(dim) : replicas, replicas);
  for (int64_t r = 0; r < replicas; ++r) {
    const Interval interval = cut.block(r);
    const at::Tensor share = x.dim() > 0 ? x.narrow(dim, interval.begin, interval.size()) : x;
    shares.push_back(share.to(devices[r].torch()));
  }
  return shares;
}

at::Tensor gather_tensors(const std::vector<at::Tensor>& parts, const Device& device, int64_t dim) {
  std::vector<at::Tensor> here;
  for (const at::Tensor& part : parts) {
    require(part.defined() == parts[0].defined(), "gather", "some replicas' tensors are undefined and others not");
    if (part.defined()) here.push_back(part.to(device.torch()));
  }
  if (here.empty()) return {};
  return here[0].dim() == 0 ? at::stack(here) : at::cat(here, dim);
}

}  // namespace lockstep::parallel
