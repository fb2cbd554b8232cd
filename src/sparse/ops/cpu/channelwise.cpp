// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "sparse/ops/kernels.h"
#include "sparse/tasks.h"

namespace lockstep::sparse::cpu {
namespace {

template <class Storage>
void run_tile(const KernelMap& map, int64_t tile, const Storage* x, const Compute<Storage>* weight, int64_t channels,
              std::vector<Compute<Storage>>& sums, Storage* y) {
  using T = Compute<Storage>;
  const int64_t first = tile * KernelMap::kTileRows;
  const int64_t rows = std::min(KernelMap::kTileRows, map.out_size() - first);
  sums.assign(rows * channels, T(0));
  for (int64_t k = 0; k < map.volume(); ++k) {
    const int64_t* bounds = map.tile_bounds(k);
    const KernelMap::Pairs pairs = map.pairs(k);
    for (int64_t i = bounds[tile]; i < bounds[tile + 1]; ++i) {
      const Storage* from = x + row_of(map.in_order(), pairs.in[i]) * channels;
      T* to = sums.data() + (pairs.out[i] - first) * channels;
      for (int64_t c = 0; c < channels; ++c) to[c] += static_cast<T>(from[c]) * weight[k * channels + c];
    }
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < channels; ++c)
      y[row_of(map.out_order(), first + i) * channels + c] = static_cast<Storage>(sums[i * channels + c]);
}

template <class Storage>
void sum_products(const KernelMap& map, int64_t k, const Storage* x, const Storage* g, int64_t channels, Storage* dw) {
  using T = Compute<Storage>;
  constexpr int64_t kSlice = 1024;
  const KernelMap::Pairs pairs = map.pairs(k);
  const int64_t slices = std::max<int64_t>(1, (pairs.count + kSlice - 1) / kSlice);
  std::vector<T> sums(slices * channels, T(0));
  for (int64_t i = 0; i < pairs.count; ++i) {
    const Storage* left = x + row_of(map.in_order(), pairs.in[i]) * channels;
    const Storage* right = g + row_of(map.out_order(), pairs.out[i]) * channels;
    T* sum = sums.data() + i / kSlice * channels;
    for (int64_t c = 0; c < channels; ++c) sum[c] += static_cast<T>(left[c]) * static_cast<T>(right[c]);
  }
  add_as_tree(sums.data(), slices, channels);
  for (int64_t c = 0; c < channels; ++c) dw[k * channels + c] = static_cast<Storage>(sums[c]);
}

}  // namespace

at::Tensor channelwise(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map) {
  at::Tensor y = at::empty({map->out_size(), x.size(1)}, x.options());
  if (y.numel() == 0) return y;
  const at::Tensor rows = x.contiguous();
  map->tile_bounds(0);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::channelwise", [&] {
    using T = Compute<scalar_t>;
    const at::Tensor weights = weight.to(c10::CppTypeToScalarType<T>::value).contiguous();
    for_each_task(
        map->tile_count(), [] { return std::vector<T>(); },
        [&](int64_t tile, std::vector<T>& sums) {
          run_tile(*map, tile, rows.const_data_ptr<scalar_t>(), weights.const_data_ptr<T>(), x.size(1), sums,
                   y.mutable_data_ptr<scalar_t>());
        });
  });
  return y;
}

at::Tensor channelwise_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map) {
  at::Tensor dw = at::empty({map->volume(), x.size(1)}, x.options());
  if (dw.numel() == 0) return dw;
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::channelwise_weight", [&] {
        for_each_task(
            map->volume(), [] { return 0; },
            [&](int64_t k, int) {
              sum_products(*map, k, rows.const_data_ptr<scalar_t>(), gradient.const_data_ptr<scalar_t>(), x.size(1),
                           dw.mutable_data_ptr<scalar_t>());
            });
      });
  return dw;
}

}  // namespace lockstep::sparse::cpu
