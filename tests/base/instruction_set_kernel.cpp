// SPDX-License-Identifier: Apache-2.0
// Compiled once a level: the smallest kernel that can tell its copies apart.
#include "base/instruction_set_kernel.h"

namespace lockstep::LOCKSTEP_ISA {

CpuLevel compiled_for() {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
  return CpuLevel::avx512;
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
  return CpuLevel::avx2;
#else
  return CpuLevel::baseline;
#endif
}

void add(float* into, const float* from, long size) {
  for (long i = 0; i < size; ++i) into[i] += from[i];
}

}  // namespace lockstep::LOCKSTEP_ISA
