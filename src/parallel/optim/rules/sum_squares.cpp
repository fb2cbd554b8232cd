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
#include "parallel/optim/rules/sum_squares.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "parallel/optim/rules/rule_batch.h"

namespace lockstep::parallel {
namespace {

double on_cpu(const at::Tensor& flat) {
  if (flat.scalar_type() == at::kFloat)
    return LOCKSTEP_SELECT_ISA(sum_squares_float)(flat.const_data_ptr<float>(), flat.numel());
  const at::Tensor values = flat.to(at::kDouble);
  return LOCKSTEP_SELECT_ISA(sum_squares_double)(values.const_data_ptr<double>(), values.numel());
}

// Sums of chunks on the GPU, one row for all of them to the host, and there a tensor's joined as a tree.
template <class T>
void in_batch(const std::vector<at::Tensor>& flats, at::ScalarType type,
              void (*launch)(const RuleTable&, double*, double*), std::vector<double>& out) {
  RuleTableDraft draft;
  std::vector<at::Tensor> held;
  std::vector<size_t> places;
  for (size_t f = 0; f < flats.size(); ++f) {
    if (flats[f].numel() == 0 || (flats[f].scalar_type() == at::kFloat) != (type == at::kFloat)) continue;
    held.push_back(flats[f].to(type));
    places.push_back(f);
    draft.add(SquaresRow<T>{held.back().const_data_ptr<T>(), held.back().numel()}, held.back().numel());
  }
  if (held.empty()) return;
  const c10::Device device = held[0].device();
  const c10::DeviceGuard guard(device);
  at::Tensor memory;
  const RuleTable table = draft.upload(device, memory);
  const auto options = at::TensorOptions(at::kDouble).device(device);
  const at::Tensor lines = at::empty({on_gpu::kSquareLanes * table.count}, options),
                   sums = at::empty({table.count}, options);
  launch(table, lines.mutable_data_ptr<double>(), sums.mutable_data_ptr<double>());
  const at::Tensor read = sums.cpu();
  const double* chunk = read.const_data_ptr<double>();
  for (size_t t = 0; t < held.size(); ++t) {
    const int64_t chunks = portable::divide_up(held[t].numel(), RuleChunk::kElements);
    out[places[t]] = portable::sum_as_tree(chunks, [&](int64_t c) { return chunk[c]; });
    chunk += chunks;
  }
}

}  // namespace

std::vector<double> sums_of_squares(const std::vector<at::Tensor>& flats) {
  std::vector<double> out(flats.size());
  if (!flats.empty() && on_gpu::batches(flats[0].device())) {
    in_batch<float>(flats, at::kFloat, on_gpu::squares_float, out);
    in_batch<double>(flats, at::kDouble, on_gpu::squares_double, out);
    return out;
  }
  for (size_t f = 0; f < flats.size(); ++f) out[f] = on_cpu(flats[f]);
  return out;
}

}  // namespace lockstep::parallel
#endif
