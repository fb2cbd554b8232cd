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

}  // namespace

at::Tensor column_moments(const at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t channels = x.size(1);
  at::Tensor out = at::empty({3, channels}, x.options().dtype(at::kDouble));
  if (channels == 0) return out;
  const at::Tensor rows = x.contiguous();
  const RowSlices slices(x.size(0));
  const at::Tensor memory = at::empty({slices.count * channels * 3}, out.options());
  static_assert(sizeof(Moments) == 3 * sizeof(double));
  auto* moments = reinterpret_cast<Moments*>(memory.mutable_data_ptr<double>());
  const auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::column_moments", [&] {
    launch(slices.count * channels, stream,
           SliceMoments<scalar_t>{rows.const_data_ptr<scalar_t>(), channels, slices, moments});
  });
  launch(channels, stream, JoinMoments{moments, slices.count, channels, out.mutable_data_ptr<double>()});
  return out;
}

at::Tensor normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                     const at::Tensor& weight, const at::Tensor& bias) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  at::Tensor y = at::empty_like(rows);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize", [&] {
    using T = Compute<scalar_t>;
    const at::Tensor centre = values_of<T>(mean), scale = values_of<T>(inverse_deviation * weight.to(at::kDouble)),
                     shift = values_of<T>(bias);
    launch(y.numel(), at::cuda::getCurrentCUDAStream(),
           Normalize<scalar_t>{rows.const_data_ptr<scalar_t>(), centre.const_data_ptr<T>(), scale.const_data_ptr<T>(),
                               shift.const_data_ptr<T>(), x.size(1), y.mutable_data_ptr<scalar_t>()});
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
  const RowSlices slices(x.size(0));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize_sums", [&] {
    using T = Compute<scalar_t>;
    const auto stream = at::cuda::getCurrentCUDAStream();
    const at::Tensor centre = values_of<T>(mean), inverse = values_of<T>(inverse_deviation);
    const at::Tensor sums = at::empty({slices.count * 2 * channels}, centre.options());
    T* lines = sums.mutable_data_ptr<T>();
    launch(slices.count * channels, stream,
           SliceGradients<scalar_t>{gradient.const_data_ptr<scalar_t>(), rows.const_data_ptr<scalar_t>(),
                                    centre.const_data_ptr<T>(), inverse.const_data_ptr<T>(), channels, slices, lines});
    launch(2 * channels, stream,
           SumLines<T, double>{lines, slices.count, 2 * channels, out.mutable_data_ptr<double>()});
  });
  return out;
}

at::Tensor normalize_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                              const at::Tensor& inverse_deviation, const at::Tensor& scale, const at::Tensor& means) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  at::Tensor dx = at::empty_like(rows);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize_gradient", [&] {
        using T = Compute<scalar_t>;
        const at::Tensor centre = values_of<T>(mean), inverse = values_of<T>(inverse_deviation),
                         factor = values_of<T>(scale), part = values_of<T>(means);
        launch(dx.numel(), at::cuda::getCurrentCUDAStream(),
               NormalizeGradient<scalar_t>{gradient.const_data_ptr<scalar_t>(), rows.const_data_ptr<scalar_t>(),
                                           centre.const_data_ptr<T>(), inverse.const_data_ptr<T>(),
                                           factor.const_data_ptr<T>(), part.const_data_ptr<T>(), x.size(1),
                                           dx.mutable_data_ptr<scalar_t>()});
      });
  return dx;
}

}  // namespace lockstep::norm::cuda
