// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/numerics/permutation.h"
#include "lockstep/numerics/philox.h"

/// Random numbers that are functions of (key, index) and of nothing else: no state, no order of calls, the same bits
/// on every platform, on CPU and CUDA, for any number of threads.
namespace lockstep {

/// Uniform in [0, 1), a multiple of 2^-24.
float uniform_float(RandomKey key, uint64_t index);
/// Uniform in [0, 1), a multiple of 2^-53.
double uniform(RandomKey key, uint64_t index);
/// Mean 0, variance 1, |x| < 8.3: the inverse of the normal distribution function at a uniform number of 52 bits.
double normal(RandomKey key, uint64_t index);
/// True with this probability, to within 2^-33. Throws Error when it is not in [0, 1].
bool bernoulli(RandomKey key, uint64_t index, double probability);
/// An integer in [0, bound), each exactly as likely. Throws Error when bound is 0.
uint64_t below(RandomKey key, uint64_t index, uint64_t bound);

/// Fills. Element i, counted in row-major order whatever the strides are, becomes number `offset + i` of the key's
/// sequence: filling a tensor in parts is filling it whole, and a memory format changes no value. Any shape, empty
/// too; CPU or CUDA; autograd does not record them, so a parameter may be filled. All return the tensor.
/// Throw Error for a dtype they do not list.

/// Uniform in [0, 1). Dtypes float32, float64, float16, bfloat16; multiples of 2^-24, 2^-53, 2^-11, 2^-8.
/// In float32 element i is uniform_float(key, offset + i), in float64 uniform(key, offset + i).
at::Tensor uniform_(const at::Tensor& tensor, RandomKey key, uint64_t offset = 0);

/// Mean 0, variance 1. Dtypes as uniform_. In float64 element i is normal(key, offset + i); the other dtypes use 32
/// random bits an element, so that |x| < 6.4.
at::Tensor normal_(const at::Tensor& tensor, RandomKey key, uint64_t offset = 0);

/// One where bernoulli(key, offset + i, probability), zero elsewhere. Any real dtype, and bool.
at::Tensor bernoulli_(const at::Tensor& tensor, double probability, RandomKey key, uint64_t offset = 0);

/// Numbers offset .. offset + numel - 1 of a keyed permutation of [0, size). Dtype int64.
/// Throws Error where these go past the size.
at::Tensor permutation_(const at::Tensor& tensor, RandomKey key, int64_t size, int64_t offset = 0);

}  // namespace lockstep
