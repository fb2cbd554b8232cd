// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

// Shared by the sources of layer data and the three builds of cpu/kernels.cpp: plain data only, see
// base/detail/instruction_set.h. No multiply and add are fused and no sum is reordered, so every level gives the same
// bits.
namespace lockstep::data {

/// out[i * stride] = (in[i] / 255) * scale + shift for i < count.
LOCKSTEP_DECLARE_ISA(void bytes_to_floats(const uint8_t* in, int64_t count, float scale, float shift, float* out,
                                          int64_t stride))
/// out[i * stride] = in[i] * scale + shift.
LOCKSTEP_DECLARE_ISA(void scale_floats(const float* in, int64_t count, float scale, float shift, float* out,
                                       int64_t stride))
/// out[3 * i + c] = in[c * count + i]: three planes become pixels.
LOCKSTEP_DECLARE_ISA(void interleave_bytes(const uint8_t* in, int64_t count, uint8_t* out))
/// out[3 * i + c] = (in[c * count + i] / 255) * scale[c] + shift[c].
LOCKSTEP_DECLARE_ISA(void bytes_to_pixels(const uint8_t* in, int64_t count, const float* scale, const float* shift,
                                          float* out))

}  // namespace lockstep::data
