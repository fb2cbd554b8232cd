// SPDX-License-Identifier: Apache-2.0
#include "sparse/ops/cuda/convolution.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include "sparse/maps/cuda/tables.h"
#include "sparse/ops/cuda/parts.h"
#include "sparse/ops/kernels.h"

namespace lockstep::sparse::cuda {
namespace {

/// Products of float32 are exact unless the user has asked libtorch for TF32 in its own.
bool use_tf32() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
}

/// A result's sums over parts, one part after another.
template <class Storage>
at::Tensor room_for_sums(const at::Tensor& result, int64_t parts) {
  return at::empty({parts, result.numel()}, result.options().dtype(c10::CppTypeToScalarType<Compute<Storage>>::value));
}

template <class Storage>
void add_up(const at::Tensor& sums, const at::Tensor& result) {
  using T = Compute<Storage>;
  launch(
      result.numel(), at::cuda::getCurrentCUDAStream(),
      SumLines<T, Storage>{sums.const_data_ptr<T>(), sums.size(0), result.numel(), result.mutable_data_ptr<Storage>()});
}

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, bool transposed,
                       int64_t groups) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t in = weight.size(1), all_out = weight.size(2), out = all_out / groups;
  at::Tensor y = at::empty({map->out_size(), transposed ? in * groups : all_out}, x.options());
  if (y.numel() == 0) return y;
  if (x.size(1) == 0) return y.zero_();
  const at::Tensor rows = x.contiguous(), weights = weight.contiguous();
  const auto on_device = table_on_device(*map, x.device());
  on_device->stream->use();
  const int64_t from = transposed ? out : in, to = transposed ? in : out;
  const OffsetParts parts(map->volume(), on_device->table.tiles() * groups * divide_up(to, kWide));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::convolution", [&] {
    const at::Tensor sums = parts.count > 1 ? room_for_sums<scalar_t>(y, parts.count) : at::Tensor();
    const ForwardJob<scalar_t> job{rows.const_data_ptr<scalar_t>(),
                                   weights.const_data_ptr<scalar_t>(),
                                   y.mutable_data_ptr<scalar_t>(),
                                   sums.defined() ? sums.mutable_data_ptr<Compute<scalar_t>>() : nullptr,
                                   on_device->table,
                                   parts,
                                   groups,
                                   from,
                                   to,
                                   in * all_out,
                                   out,
                                   transposed ? 1 : all_out,
                                   transposed ? all_out : 1};
    launch_forward(job, use_tf32(), at::cuda::getCurrentCUDAStream());
    if (sums.defined()) add_up<scalar_t>(sums, y);
  });
  return y;
}

at::Tensor convolution_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map, int64_t groups) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t in = x.size(1) / groups, out = g.size(1) / groups;
  at::Tensor dw = at::empty({map->volume(), in, g.size(1)}, x.options());
  if (dw.numel() == 0) return dw;
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  const auto on_device = table_on_device(*map, x.device());
  on_device->stream->use();
  const WeightSlices slices(on_device->table.tiles(), dw.numel());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::convolution_weight",
                                  [&] {
                                    const at::Tensor sums = room_for_sums<scalar_t>(dw, slices.count);
                                    const WeightJob<scalar_t> job{rows.const_data_ptr<scalar_t>(),
                                                                  gradient.const_data_ptr<scalar_t>(),
                                                                  sums.mutable_data_ptr<Compute<scalar_t>>(),
                                                                  on_device->table,
                                                                  slices,
                                                                  groups,
                                                                  in,
                                                                  out};
                                    launch_weight(job, use_tf32(), at::cuda::getCurrentCUDAStream());
                                    add_up<scalar_t>(sums, dw);
                                  });
  return dw;
}

}  // namespace lockstep::sparse::cuda
