// SPDX-License-Identifier: Apache-2.0
// Compiled once for each CPU level: raw pointers and file-local code only (see base/detail/instruction_set.h).
#include "metrics/cpu/scatter_kernel.h"

namespace lockstep::metrics::LOCKSTEP_ISA {

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

}  // namespace lockstep::metrics::LOCKSTEP_ISA
