// SPDX-License-Identifier: Apache-2.0
// Compiled once for each CPU level: raw pointers and file-local code only (see core/cpu_level.h).
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

// Four rows at a time: the triangle, which is what does not fit the cache, goes through it a quarter as often.
void add_scatter(const double* rows, int64_t count, int64_t width, double* triangle) {
  int64_t row = 0;
  for (; row + 4 <= count; row += 4) {
    const double *p = rows + row * width, *q = p + width, *r = q + width, *s = r + width;
    double* out = triangle;
    for (int64_t a = 0; a < width; ++a) {
      const double pa = p[a], qa = q[a], ra = r[a], sa = s[a];
      for (int64_t b = a; b < width; ++b) out[b - a] += (pa * p[b] + qa * q[b]) + (ra * r[b] + sa * s[b]);
      out += width - a;
    }
  }
  for (; row < count; ++row) {
    const double* p = rows + row * width;
    double* out = triangle;
    for (int64_t a = 0; a < width; ++a) {
      const double pa = p[a];
      for (int64_t b = a; b < width; ++b) out[b - a] += pa * p[b];
      out += width - a;
    }
  }
}

}  // namespace lockstep::data::LOCKSTEP_ISA
