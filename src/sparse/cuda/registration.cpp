// SPDX-License-Identifier: Apache-2.0
#include "sparse/registration.h"

#include <torch/library.h>

#include "lockstep/norm/detail/row_kernels.h"
#include "sparse/ops/kernels.h"

void lockstep::sparse::cuda::register_operations(torch::Library& library) {
#define ON_CUDA(name) library.impl(#name, &lockstep::sparse::cuda::name)
  ON_CUDA(convolution);
  ON_CUDA(convolution_weight);
  ON_CUDA(channelwise);
  ON_CUDA(channelwise_weight);
  ON_CUDA(row_sum);
  ON_CUDA(row_dot);
  ON_CUDA(row_pick);
  ON_CUDA(row_unpick);
  ON_CUDA(row_argmax);
  ON_CUDA(column_sum);
#define NORM_ON_CUDA(name) library.impl(#name, &lockstep::norm::cuda::name)
  NORM_ON_CUDA(column_moments);
  NORM_ON_CUDA(normalize);
  NORM_ON_CUDA(normalize_sums);
  NORM_ON_CUDA(normalize_gradient);
}
