// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::dense {

/// Whether our kernels compute a convolution (of one group, without dilation) of these tensors: where they are faster,
/// or as LOCKSTEP_DENSE in the environment says.
bool takes(const at::Tensor& x, const at::Tensor& weight, bool strides_by_one);

}  // namespace lockstep::dense
