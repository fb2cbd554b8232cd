// SPDX-License-Identifier: Apache-2.0
// Compiled once as it is, and once an instruction set with LOCKSTEP_ISA defined, for its kernel alone.
#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

namespace lockstep::parallel {

LOCKSTEP_DECLARE_ISA(double sum_squares_float(const float* values, int64_t count))
LOCKSTEP_DECLARE_ISA(double sum_squares_double(const double* values, int64_t count))

}  // namespace lockstep::parallel

#ifdef LOCKSTEP_ISA
namespace lockstep::parallel::LOCKSTEP_ISA {
namespace {

// Sixteen sums side by side, so that vectors of any width add in the same order.
template <class T>
double sum_squares(const T* values, int64_t count) {
  constexpr int kLanes = 16;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = static_cast<double>(values[i + lane]);
      sums[lane] += x * x;
    }
  for (int lane = 0; i < count; ++i, ++lane)
    sums[lane] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

}  // namespace

double sum_squares_float(const float* values, int64_t count) {
  return sum_squares<float>(values, count);
}
double sum_squares_double(const double* values, int64_t count) {
  return sum_squares<double>(values, count);
}

}  // namespace lockstep::parallel::LOCKSTEP_ISA

#else
#include "parallel/optim/rule_slice.h"
#include "parallel/optim/sum_squares.h"

namespace lockstep::parallel {

double sum_squares(const at::Tensor& flat) {
  if (!has_kernel(flat)) return flat.to(at::kDouble).square().sum().item<double>();
  return flat.scalar_type() == at::kFloat
             ? LOCKSTEP_SELECT_ISA(sum_squares_float)(flat.const_data_ptr<float>(), flat.numel())
             : LOCKSTEP_SELECT_ISA(sum_squares_double)(flat.const_data_ptr<double>(), flat.numel());
}

}  // namespace lockstep::parallel
#endif
