// SPDX-License-Identifier: Apache-2.0
#include "sparse/library.h"

#include <torch/library.h>

#include "sparse/ops/operations.h"

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
  ON_CUDA(column_moments);
  ON_CUDA(normalize);
  ON_CUDA(normalize_sums);
  ON_CUDA(normalize_gradient);
}
