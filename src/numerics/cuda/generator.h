// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>

#include "lockstep/numerics/philox.h"

namespace lockstep::detail {

at::Generator make_cuda_generator(at::Device device);
void rekey_cuda(const at::Generator& generator, RandomKey key);

}  // namespace lockstep::detail
