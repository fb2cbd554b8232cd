// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "dense/geometry.h"

namespace lockstep::dense::cpu {

// The convolution's geometry has the points alone that windows cover. Tensors are channels-last and of one type; bias,
// and gradients that nobody wants, are undefined. The windows lie on images of one channel, whose values are the
// points. `signs`, of signs_size() bytes, says which values were positive.

int64_t signs_size(const Geometry& geometry);

void pooled_convolution(const Geometry& geometry, const Geometry& windows, const at::Tensor& x,
                        const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& signs, const at::Tensor& y);
void pooled_gradients(const Geometry& geometry, const Geometry& windows, const at::Tensor& gradient,
                      const at::Tensor& x, const at::Tensor& weight, const at::Tensor& signs,
                      const at::Tensor& x_gradient, const at::Tensor& weight_gradient, const at::Tensor& bias_gradient);

}  // namespace lockstep::dense::cpu
