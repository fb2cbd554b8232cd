// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/error.h"
#include "lockstep/norm/detail/row_kernels.h"
#include "norm/strided.h"

namespace lockstep::norm::cuda {
namespace {

[[noreturn]] void refuse(const at::Tensor& given) {
  fail("batch_norm", "this build has no CUDA and got a tensor on ", given.device(), ", expected one on the CPU");
}

}  // namespace

at::Tensor merge_moments(const at::Tensor& all) {
  refuse(all);
}
at::Tensor batch_moments(const at::Tensor& x) {
  refuse(x);
}
at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                           const at::Tensor&) {
  refuse(x);
}
at::Tensor batch_gradient_sums(const at::Tensor&, const at::Tensor& x, const at::Tensor&, const at::Tensor&) {
  refuse(x);
}
at::Tensor batch_input_gradient(const at::Tensor&, const at::Tensor& x, const at::Tensor&, const at::Tensor&,
                                const at::Tensor&, const at::Tensor&) {
  refuse(x);
}

}  // namespace lockstep::norm::cuda
