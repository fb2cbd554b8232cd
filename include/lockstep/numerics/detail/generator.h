// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include "lockstep/numerics/philox.h"

namespace lockstep {

/// A generator for libtorch's own operations (at::bernoulli, at::normal, at::randint, ...) whose numbers follow from
/// the key, for code that cannot use the functions of random.h. Each is its own: nothing touches the generator that
/// all threads of a process share by default. One thread at a time uses it, as any generator.
///
/// What an operation makes of the random bits is libtorch's business: repeatable within one fingerprint, the same for
/// any number of threads, but not the same on CPU and CUDA. at::dropout takes no generator: use at::bernoulli, or
/// bernoulli_ of random.h, for the mask.
///
/// Throws Error for a device that is not cpu or cuda, or cuda in a build without it.
at::Generator keyed_generator(RandomKey key, at::Device device = at::kCPU);

/// Puts a generator that keyed_generator made at the start of another key's sequence, at the cost of about a
/// microsecond: one generator a layer, re-keyed every step.
void rekey(const at::Generator& generator, RandomKey key);

}  // namespace lockstep
