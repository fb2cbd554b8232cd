// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include "sparse/maps/cuda/tables.h"
#include "sparse/ops/cuda/parts.h"
#include "sparse/ops/kernels.h"

namespace lockstep::sparse::cuda {
namespace {

/// Runs `part`, which sums pieces, and joins the pieces where a row has several.
template <class Storage, class Part>
void sum_rows_of(Part part, const at::TensorOptions& options) {
  using T = Compute<Storage>;
  const auto stream = at::cuda::getCurrentCUDAStream();
  const RowTable& table = part.table;
  if (table.whole()) return launch(table.pieces * part.channels, stream, part);
  const at::Tensor sums = at::empty({table.pieces * part.channels}, options.dtype(c10::CppTypeToScalarType<T>::value));
  part.sums = sums.mutable_data_ptr<T>();
  launch(sums.numel(), stream, part);
  launch(table.rows * part.channels, stream, JoinPieces<Storage>{table, part.sums, part.channels, part.y});
}

}  // namespace

at::Tensor row_sum(const at::Tensor& x, const RowMapPtr& map, const MaybeTensor& weights) {
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty({map->out_size(), x.size(1)}, x.options());
  if (y.numel() == 0) return y;
  const at::Tensor rows = x.contiguous();
  const at::Tensor given = weights ? weights->to(x.options()).contiguous() : at::Tensor();
  const auto on_device = rows_on_device(*map, x.device());
  on_device->stream.use();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::row_sum", [&] {
    const scalar_t* weight = given.defined() ? given.const_data_ptr<scalar_t>() : nullptr;
    sum_rows_of<scalar_t>(SumPiece<scalar_t>{on_device->table, rows.const_data_ptr<scalar_t>(), weight, x.size(1),
                                             nullptr, y.mutable_data_ptr<scalar_t>()},
                          x.options());
  });
  return y;
}

at::Tensor row_dot(const at::Tensor& g, const at::Tensor& x, const RowMapPtr& map) {
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor w = at::empty({map->entry_count()}, x.options());
  if (w.numel() == 0) return w;
  const at::Tensor left = g.contiguous(), right = x.contiguous();
  const auto on_device = rows_on_device(*map, x.device());
  on_device->stream.use();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::row_dot", [&] {
    launch(w.numel(), at::cuda::getCurrentCUDAStream(),
           DotEntry<scalar_t>{on_device->table, left.const_data_ptr<scalar_t>(), right.const_data_ptr<scalar_t>(),
                              x.size(1), w.mutable_data_ptr<scalar_t>()});
  });
  return w;
}

at::Tensor row_argmax(const at::Tensor& x, const RowMapPtr& map) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t channels = x.size(1);
  at::Tensor chosen = at::empty({map->out_size(), channels}, x.options().dtype(at::kLong));
  if (chosen.numel() == 0) return chosen;
  const at::Tensor rows = x.contiguous();
  const auto on_device = rows_on_device(*map, x.device());
  on_device->stream.use();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::row_argmax", [&] {
    const auto stream = at::cuda::getCurrentCUDAStream();
    const RowTable& table = on_device->table;
    int64_t* out = chosen.mutable_data_ptr<int64_t>();
    BestOfPiece<scalar_t> part{table, rows.const_data_ptr<scalar_t>(), channels, nullptr, out};
    at::Tensor memory;
    if (!table.whole()) {
      memory = at::empty({table.pieces * channels * static_cast<int64_t>(sizeof(Best<scalar_t>))},
                         x.options().dtype(at::kByte));
      part.bests = static_cast<Best<scalar_t>*>(memory.mutable_data_ptr());
    }
    launch(table.pieces * channels, stream, part);
    if (!table.whole()) launch(table.rows * channels, stream, JoinBests<scalar_t>{table, part.bests, channels, out});
  });
  return chosen;
}

at::Tensor row_pick(const at::Tensor& x, const RowMapPtr& map, const at::Tensor& chosen) {
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty({map->out_size(), x.size(1)}, x.options());
  if (y.numel() == 0) return y;
  const at::Tensor rows = x.contiguous(), choice = chosen.contiguous();
  const auto on_device = rows_on_device(*map, x.device());
  on_device->stream.use();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::row_pick", [&] {
    launch(y.numel(), at::cuda::getCurrentCUDAStream(),
           PickChosen<scalar_t>{on_device->table, rows.const_data_ptr<scalar_t>(), choice.const_data_ptr<int64_t>(),
                                x.size(1), y.mutable_data_ptr<scalar_t>()});
  });
  return y;
}

at::Tensor row_unpick(const at::Tensor& g, const RowMapPtr& map, const at::Tensor& chosen) {
  const c10::cuda::CUDAGuard guard(g.device());
  at::Tensor dx = at::empty({map->in_size(), g.size(1)}, g.options());
  if (dx.numel() == 0) return dx;
  const at::Tensor gradient = g.contiguous(), choice = chosen.contiguous();
  const auto on_device = rows_on_device(*map->transposed(), g.device());
  on_device->stream.use();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, g.scalar_type(), "lockstep_sparse::row_unpick", [&] {
    sum_rows_of<scalar_t>(
        SumChosen<scalar_t>{on_device->table, gradient.const_data_ptr<scalar_t>(), choice.const_data_ptr<int64_t>(),
                            g.size(1), nullptr, dx.mutable_data_ptr<scalar_t>()},
        g.options());
  });
  return dx;
}

at::Tensor column_sum(const at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t channels = x.size(1);
  at::Tensor sum = at::empty({channels}, x.options());
  if (channels == 0) return sum;
  const at::Tensor rows = x.contiguous();
  const RowSlices slices(x.size(0));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::column_sum", [&] {
    using T = Compute<scalar_t>;
    const auto stream = at::cuda::getCurrentCUDAStream();
    const at::Tensor sums = at::empty({slices.count * channels}, x.options().dtype(c10::CppTypeToScalarType<T>::value));
    T* lines = sums.mutable_data_ptr<T>();
    launch(sums.numel(), stream, SumSlice<scalar_t>{rows.const_data_ptr<scalar_t>(), channels, slices, lines});
    // Few threads would each go through many lines: neighbours are joined first, by more of them.
    const int64_t groups = portable::divide_up(slices.count, portable::kTogether);
    const at::Tensor joined = groups > 1 ? at::empty({groups * channels}, sums.options()) : sums;
    T* few = joined.mutable_data_ptr<T>();
    if (groups > 1)
      launch(joined.numel(), stream, SumLines<T, T>{lines, slices.count, channels, few, portable::kTogether});
    launch(channels, stream,
           SumLines<T, scalar_t>{few, joined.numel() / channels, channels, sum.mutable_data_ptr<scalar_t>()});
  });
  return sum;
}

}  // namespace lockstep::sparse::cuda
