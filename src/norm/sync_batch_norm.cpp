// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/sync_batch_norm.h"

#include "lockstep/base/error.h"
#include "lockstep/norm/detail/batch_norm.h"
#include "norm/strided.h"

namespace lockstep::norm {
namespace {

void check(const char* name, const at::Tensor& given, const at::Tensor& x) {
  require(!given.defined() || (given.dim() == 1 && given.size(0) == x.size(1)), "sync_batch_norm", name, " is ",
          given.defined() ? given.sizes() : at::IntArrayRef(), ", expected [", x.size(1), "] for x ", x.sizes());
}

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                           double epsilon, BatchNormMode mode, Peers* peers) {
  require(x.dim() >= 2 && at::isFloatingType(x.scalar_type()), "sync_batch_norm", "x is ", x.scalar_type(), " ",
          x.sizes(), ", expected a floating-point [N, C, ...]");
  check("weight", weight, x);
  check("bias", bias, x);
  check("running_mean", running_mean, x);
  check("running_var", running_var, x);
  return batch_norm(strided_operations(), x, {weight, bias, running_mean, running_var, momentum, epsilon}, mode, peers);
}

}  // namespace lockstep::norm
