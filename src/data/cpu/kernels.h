// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/core/cpu_level.h"

// Shared by the sources of layer data and the three builds of cpu/kernels.cpp: plain data only, see core/cpu_level.h.
// No multiply and add are fused and no sum is reordered, so every level gives the same bits.
namespace lockstep::data {

/// out[i * stride] = (in[i] / 255) * scale + shift for i < count.
LOCKSTEP_DECLARE_ISA(void bytes_to_floats(const uint8_t* in, int64_t count, float scale, float shift, float* out,
                                          int64_t stride))
/// out[i * stride] = in[i] * scale + shift.
LOCKSTEP_DECLARE_ISA(void scale_floats(const float* in, int64_t count, float scale, float shift, float* out,
                                       int64_t stride))
/// Adds rows^T rows of `count` rows [count, width] to the upper triangle [width * (width + 1) / 2].
LOCKSTEP_DECLARE_ISA(void add_scatter(const double* rows, int64_t count, int64_t width, double* triangle))

}  // namespace lockstep::data
