// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/convolution.h"

#include <ATen/TensorOperators.h>

#include "lockstep/base/error.h"
#include "sparse/feature_checks.h"
#include "sparse/ops/kernels.h"

namespace lockstep::sparse {
namespace {

void check_product(const char* operation, const at::Tensor& x, const at::Tensor& weight, int64_t weight_dims,
                   const KernelMap& map) {
  check_features(operation, x, map.in_size());
  require(weight.defined() && weight.dim() == weight_dims, operation, "weight is ", describe(weight), ", expected ",
          weight_dims, " dimensions");
  require(weight.size(0) == map.volume(), operation, "weight is ", describe(weight), ", expected ", map.volume(),
          " matrices, one for each offset of the kernel map");
  check_same_kind(operation, "weight", weight, x);
}

}  // namespace

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, int64_t groups) {
  const char* name = "convolve";
  check_product(name, x, weight, 3, *map);
  require(groups >= 1 && x.size(1) % groups == 0 && weight.size(2) % groups == 0, name, "groups is ", groups,
          ", expected a divisor of ", x.size(1), " input and ", weight.size(2), " output channels");
  require(weight.size(1) * groups == x.size(1), name, "x has ", x.size(1), " channels, expected ",
          weight.size(1) * groups, ": weight is ", describe(weight), " with ", groups, " groups");
  return convolution(x, weight, map, false, groups);
}

at::Tensor convolve_channelwise(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map) {
  const char* name = "convolve_channelwise";
  check_product(name, x, weight, 2, *map);
  require(weight.size(1) == x.size(1), name, "x has ", x.size(1), " channels, expected ", weight.size(1),
          " as weight has");
  return channelwise(x, weight, map);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  require(x.defined() && x.dim() == 2, "linear", "x is ", describe(x), ", expected [N, C]");
  require(weight.defined() && weight.dim() == 2 && weight.size(0) == x.size(1), "linear", "weight is ",
          describe(weight), ", expected [", x.size(1), ", Cout]");
  const at::Tensor y = convolve(x, weight.unsqueeze(0), KernelMap::identity(x.size(0)));
  return bias.defined() ? add_bias(y, bias) : y;
}

at::Tensor add_bias(const at::Tensor& x, const at::Tensor& bias) {
  require(bias.numel() == x.size(1), "add_bias", "bias is ", describe(bias), ", expected ", x.size(1), " values");
  return x + expand_rows(bias.reshape({x.size(1)}).to(x.scalar_type()), x.size(0));
}

at::Tensor scale_channels(const at::Tensor& x, const at::Tensor& weight) {
  require(weight.numel() == x.size(1), "scale_channels", "weight is ", describe(weight), ", expected ", x.size(1),
          " values");
  return x * expand_rows(weight.reshape({x.size(1)}).to(x.scalar_type()), x.size(0));
}

}  // namespace lockstep::sparse
