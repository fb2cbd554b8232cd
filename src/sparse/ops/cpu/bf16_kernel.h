// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sparse/ops/cpu/matrix_kernel.h"

// The two products on rows of bfloat16 where they lie, by instructions that multiply two pairs of values at once. Both
// products of a pair are exact in float32; that of the odd place is added to the sum first, then that of the even one,
// each rounded. The instructions take tiny numbers (below 2^-126) for zero.
namespace lockstep::sparse {

/// For rows with an even number of values; null where this CPU, or a lowered level, has no such instructions.
const MatrixKernels<uint16_t, float>* bf16_kernels();

namespace isa_avx512_bf16 {
const MatrixKernels<uint16_t, float>& kernels();
}

}  // namespace lockstep::sparse
