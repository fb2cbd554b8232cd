// SPDX-License-Identifier: Apache-2.0
// Compiled once for each CPU level: raw pointers and file-local code only (see base/detail/instruction_set.h).
#include "data/cpu/kernels.h"

namespace lockstep::data::LOCKSTEP_ISA {

void bytes_to_floats(const uint8_t* in, int64_t count, float scale, float shift, float* out, int64_t stride) {
  if (stride == 1)  // a loop of its own, so that it is vectorised
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) / 255.0f * scale + shift;
  else
    for (int64_t i = 0; i < count; ++i) out[i * stride] = static_cast<float>(in[i]) / 255.0f * scale + shift;
}

void scale_floats(const float* in, int64_t count, float scale, float shift, float* out, int64_t stride) {
  if (stride == 1)
    for (int64_t i = 0; i < count; ++i) out[i] = in[i] * scale + shift;
  else
    for (int64_t i = 0; i < count; ++i) out[i * stride] = in[i] * scale + shift;
}

void interleave_bytes(const uint8_t* __restrict in, int64_t count, uint8_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < 3; ++c) out[3 * i + c] = in[c * count + i];
}

void bytes_to_pixels(const uint8_t* __restrict in, int64_t count, const float* scale, const float* shift,
                     float* __restrict out) {
  const float factor[] = {scale[0], scale[1], scale[2]}, summand[] = {shift[0], shift[1], shift[2]};
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < 3; ++c)
      out[3 * i + c] = static_cast<float>(in[c * count + i]) / 255.0f * factor[c] + summand[c];
}

}  // namespace lockstep::data::LOCKSTEP_ISA
