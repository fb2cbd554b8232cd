// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/sync_batch_norm.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/error.h"
#include "lockstep/norm/detail/after_step.h"
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
  const Layer layer{weight, bias, running_mean, running_var, momentum, epsilon};
  const bool several_rows = x.numel() > x.size(1);  // of fewer torch tells no variance
  if (mode == BatchNormMode::ghost && x.is_cuda() && several_rows) return ghost_by_torch(x, layer, peers);
  return batch_norm(strided_operations(), x, layer, mode, peers);
}

// torch's layer alone knows its batch's statistics in a form that all its kernels have: running ones that move all the
// way. They carry no mark, so this is torch's own at::batch_norm. They are written where rows_of_share would have them,
// each at a multiple of 16 bytes: a launch for each thing that is done to a few numbers would take longer than the
// rest.
at::Tensor ghost_by_torch(const at::Tensor& x, const Layer& layer, Peers* peers) {
  const bool cudnn = at::globalContext().userEnabledCuDNN();
  if (!layer.running_mean.defined() && !layer.running_var.defined())
    return at::batch_norm(x, layer.weight, layer.bias, {}, {}, true, 1, layer.epsilon, cudnn);
  const auto type = (layer.running_mean.defined() ? layer.running_mean : layer.running_var).options();
  const int64_t channels = x.size(1);
  const at::Tensor rows = at::zeros({4, (channels + 3) / 4 * 4}, type).narrow(1, 0, channels);
  rows.slice(0, 0, 4, 2).fill_(1);  // there are a mean and a variance
  const at::Tensor y = at::batch_norm(x, layer.weight, layer.bias, rows[1], rows[3], true, 1, layer.epsilon, cudnn);
  const at::NoGradGuard no_grad;
  move_to_mean_of_shares(peers, rows, layer);
  return y;
}

}  // namespace lockstep::norm
