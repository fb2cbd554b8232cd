// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>

#include "lockstep/norm/detail/row_kernels.h"
#include "norm/cuda/parts.h"

namespace lockstep::norm::cuda {
namespace {

/// Statistics, given in float64, as kernels take them.
template <class T>
at::Tensor values_of(const at::Tensor& tensor) {
  return tensor.to(c10::CppTypeToScalarType<T>::value).contiguous();
}

/// Slices that are joined, enough to fill a GPU, and slices of what needs no sum.
RowSlices slices_of_sums(int64_t rows) {
  return RowSlices(rows, 256, kTogether * kTogether);
}
RowSlices slices_of_rows(int64_t rows) {
  return RowSlices(rows, 16, int64_t{1} << 20);
}

/// Joins a line for each slice by launch(count, lines, together, result): at once, or neighbours first.
template <class Launch>
at::Tensor join_lines(const at::Tensor& lines, const Launch& launch_join) {
  const int64_t count = lines.size(0), groups = portable::divide_up(count, kTogether);
  at::Tensor joined = at::empty({groups, lines.size(1), lines.size(2)}, lines.options().dtype(at::kDouble));
  launch_join(lines, joined, groups > 1 ? kTogether : count);
  return groups > 1 ? join_lines(joined, launch_join) : joined[0];
}

at::Tensor join_moments(const at::Tensor& moments) {
  const int64_t channels = moments.size(2);
  return join_lines(moments, [&](const at::Tensor& given, const at::Tensor& joined, int64_t together) {
    launch(joined.size(0) * channels, at::cuda::getCurrentCUDAStream(),
           JoinMoments{{channels, given.mutable_data_ptr<double>()},
                       {channels, joined.mutable_data_ptr<double>()},
                       given.size(0),
                       together});
  });
}

template <class From>
void sum_lines(const at::Tensor& given, const at::Tensor& joined, int64_t together) {
  launch(joined.numel(), at::cuda::getCurrentCUDAStream(),
         SumLines<From, double>{given.const_data_ptr<From>(), given.size(0), given.size(1) * given.size(2),
                                joined.mutable_data_ptr<double>(), together});
}

}  // namespace

template <class Part>
void for_each_channel(c10::Device device, int64_t channels, const Part& part) {
  const c10::cuda::CUDAGuard guard(device);
  launch(channels, at::cuda::getCurrentCUDAStream(), part);
}
template void for_each_channel(c10::Device, int64_t, const MakeStatistics&);
template void for_each_channel(c10::Device, int64_t, const MoveRow<float>&);
template void for_each_channel(c10::Device, int64_t, const MoveRow<double>&);

at::Tensor merge_moments(const at::Tensor& all) {
  const c10::cuda::CUDAGuard guard(all.device());
  return all.size(2) == 0 ? all[0] : join_moments(all.contiguous());
}

at::Tensor column_moments(const at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t channels = x.size(1);
  const at::Tensor rows = x.contiguous();
  const RowSlices slices = slices_of_sums(x.size(0));
  const at::Tensor moments = at::empty({slices.count, 3, channels}, x.options().dtype(at::kDouble));
  if (channels == 0) return moments[0];
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::column_moments", [&] {
    launch(slices.count * channels, at::cuda::getCurrentCUDAStream(),
           SliceMoments<scalar_t>{
               rows.const_data_ptr<scalar_t>(), channels, slices, {channels, moments.mutable_data_ptr<double>()}});
  });
  return join_moments(moments);
}

at::Tensor normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                     const at::Tensor& weight, const at::Tensor& bias) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  at::Tensor y = at::empty_like(rows);
  const RowSlices slices = slices_of_rows(x.size(0));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize", [&] {
    using T = Compute<scalar_t>;
    const at::Tensor centre = values_of<T>(mean), scale = values_of<T>(inverse_deviation * weight.to(at::kDouble)),
                     shift = values_of<T>(bias);
    launch(slices.count * x.size(1), at::cuda::getCurrentCUDAStream(),
           Normalize<scalar_t>{rows.const_data_ptr<scalar_t>(), centre.const_data_ptr<T>(), scale.const_data_ptr<T>(),
                               shift.const_data_ptr<T>(), x.size(1), slices, y.mutable_data_ptr<scalar_t>()});
  });
  return y;
}

at::Tensor normalize_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                          const at::Tensor& inverse_deviation) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t channels = x.size(1);
  at::Tensor out = at::empty({2, channels}, x.options().dtype(at::kDouble));
  if (channels == 0) return out;
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  const RowSlices slices = slices_of_sums(x.size(0));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize_sums", [&] {
    using T = Compute<scalar_t>;
    const at::Tensor centre = values_of<T>(mean), inverse = values_of<T>(inverse_deviation);
    const at::Tensor sums = at::empty({slices.count, 2, channels}, centre.options());
    launch(slices.count * channels, at::cuda::getCurrentCUDAStream(),
           SliceGradients<scalar_t>{gradient.const_data_ptr<scalar_t>(), rows.const_data_ptr<scalar_t>(),
                                    centre.const_data_ptr<T>(), inverse.const_data_ptr<T>(), channels, slices,
                                    sums.mutable_data_ptr<T>()});
    out = join_lines(sums, [](const at::Tensor& given, const at::Tensor& joined, int64_t together) {
      given.scalar_type() == at::kDouble ? sum_lines<double>(given, joined, together)
                                         : sum_lines<T>(given, joined, together);
    });
  });
  return out;
}

at::Tensor normalize_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                              const at::Tensor& inverse_deviation, const at::Tensor& scale, const at::Tensor& means) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  at::Tensor dx = at::empty_like(rows);
  const RowSlices slices = slices_of_rows(x.size(0));
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize_gradient", [&] {
        using T = Compute<scalar_t>;
        const at::Tensor centre = values_of<T>(mean), inverse = values_of<T>(inverse_deviation),
                         factor = values_of<T>(scale), part = values_of<T>(means);
        launch(slices.count * x.size(1), at::cuda::getCurrentCUDAStream(),
               NormalizeGradient<scalar_t>{gradient.const_data_ptr<scalar_t>(), rows.const_data_ptr<scalar_t>(),
                                           centre.const_data_ptr<T>(), inverse.const_data_ptr<T>(),
                                           factor.const_data_ptr<T>(), part.const_data_ptr<T>(), x.size(1), slices,
                                           dx.mutable_data_ptr<scalar_t>()});
      });
  return dx;
}

}  // namespace lockstep::norm::cuda
