// SPDX-License-Identifier: Apache-2.0
// Batch norms of images are those of rows: a row is the channels of one place of one image.
#include "norm/strided.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/norm/detail/row_kernels.h"

namespace lockstep::norm::cuda {
namespace {

/// [rows, C], without a copy where the channels of a place lie side by side.
at::Tensor rows_of(const at::Tensor& x) {
  const int64_t channels = x.size(1);
  return x.movedim(1, -1).reshape({channels > 0 ? x.numel() / channels : 0, channels});
}

/// Rows in the shape and the order of x.
at::Tensor as_images(const at::Tensor& rows, const at::Tensor& x) {
  return rows.view(x.movedim(1, -1).sizes()).movedim(-1, 1).contiguous(x.suggest_memory_format());
}

}  // namespace

at::Tensor batch_moments(const at::Tensor& x) {
  return column_moments(rows_of(x));
}

at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                           const at::Tensor& weight, const at::Tensor& bias) {
  return as_images(normalize(rows_of(x), mean, inverse_deviation, weight.defined() ? weight : at::ones_like(mean),
                             bias.defined() ? bias : at::zeros_like(mean)),
                   x);
}

at::Tensor batch_gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& inverse_deviation) {
  return normalize_sums(rows_of(g), rows_of(x), mean, inverse_deviation);
}

at::Tensor batch_input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& inverse_deviation, const at::Tensor& weight,
                                const at::Tensor& means) {
  const at::Tensor scale = weight.defined() ? weight.to(at::kDouble) * inverse_deviation : inverse_deviation;
  return as_images(normalize_gradient(rows_of(g), rows_of(x), mean, inverse_deviation, scale, means), x);
}

}  // namespace lockstep::norm::cuda
