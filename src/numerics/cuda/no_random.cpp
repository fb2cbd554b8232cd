// SPDX-License-Identifier: Apache-2.0
// Stands in for random.cu in a build without CUDA.
#include "numerics/random_fill.h"

namespace lockstep::detail {

void fill_cuda(const at::Tensor& tensor, const Draw&, uint64_t) {
  fail("random fill", "tensor is on ", tensor.device().str(), ", expected cpu: this build has no CUDA");
}

}  // namespace lockstep::detail
