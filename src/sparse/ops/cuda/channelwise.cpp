// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include "sparse/maps/cuda/tables.h"
#include "sparse/ops/cuda/parts.h"
#include "sparse/ops/kernels.h"

namespace lockstep::sparse::cuda {

at::Tensor channelwise(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map) {
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty({map->out_size(), x.size(1)}, x.options());
  if (y.numel() == 0) return y;
  const at::Tensor rows = x.contiguous(), weights = weight.contiguous();
  const auto on_device = table_on_device(*map, x.device());
  on_device->stream->use();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::channelwise", [&] {
    launch(y.numel(), at::cuda::getCurrentCUDAStream(),
           ChannelwiseForward<scalar_t>{on_device->table, rows.const_data_ptr<scalar_t>(),
                                        weights.const_data_ptr<scalar_t>(), x.size(1), y.mutable_data_ptr<scalar_t>()});
  });
  return y;
}

at::Tensor channelwise_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t channels = x.size(1);
  at::Tensor dw = at::empty({map->volume(), channels}, x.options());
  if (dw.numel() == 0) return dw;
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  const auto on_device = table_on_device(*map, x.device());
  on_device->stream->use();
  const RowSlices slices(map->out_size());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::channelwise_weight", [&] {
        using T = Compute<scalar_t>;
        const auto stream = at::cuda::getCurrentCUDAStream();
        const at::Tensor sums =
            at::empty({slices.count * dw.numel()}, x.options().dtype(c10::CppTypeToScalarType<T>::value));
        T* sum = sums.mutable_data_ptr<T>();
        launch(sums.numel(), stream,
               ChannelwiseWeight<scalar_t>{on_device->table, slices, rows.const_data_ptr<scalar_t>(),
                                           gradient.const_data_ptr<scalar_t>(), channels, sum});
        launch(dw.numel(), stream,
               SumLines<T, scalar_t>{sum, slices.count, dw.numel(), dw.mutable_data_ptr<scalar_t>()});
      });
  return dw;
}

}  // namespace lockstep::sparse::cuda
