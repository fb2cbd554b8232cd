// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "lockstep/base/detail/parallel_for.h"
#include "sparse/ops/kernels.h"
#include "sparse/tasks.h"

// Sums of rows. A row with many entries (all points of a batch entry, say) is cut into slices of a fixed length, which
// are summed as a tree; so the result is one for any number of threads, and long rows run on all of them.

namespace lockstep::sparse::cpu {
namespace {

constexpr int64_t kRowSlice = 1024;

int64_t grain(int64_t channels) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, channels));
}

template <class Storage>
class RowSum {
 public:
  using T = Compute<Storage>;

  RowSum(const RowMap& map, const at::Tensor& x, const Storage* weights, at::Tensor& y)
      : map_(map),
        x_(x.const_data_ptr<Storage>()),
        weights_(weights),
        channels_(x.size(1)),
        y_(y.mutable_data_ptr<Storage>()) {}

  void run() {
    const auto bounds = map_.bounds();
    parallel_for(0, map_.out_size(), grain(channels_), [&](int64_t begin, int64_t end) {
      std::vector<T> sum(channels_);
      for (int64_t row = begin; row < end; ++row) {
        if (bounds[row + 1] - bounds[row] > kRowSlice) continue;
        std::fill(sum.begin(), sum.end(), T(0));
        add(bounds[row], bounds[row + 1], sum.data());
        write(row, sum.data());
      }
    });
    for (int64_t row = 0; row < map_.out_size(); ++row)
      if (bounds[row + 1] - bounds[row] > kRowSlice) run_long(row);
  }

 private:
  void run_long(int64_t row) {
    const int64_t begin = map_.bounds()[row], end = map_.bounds()[row + 1];
    const int64_t slices = (end - begin + kRowSlice - 1) / kRowSlice;
    std::vector<T> sums(slices * channels_, T(0));
    parallel_for(0, slices, 1, [&](int64_t first, int64_t last) {
      for (int64_t s = first; s < last; ++s)
        add(begin + s * kRowSlice, std::min(end, begin + (s + 1) * kRowSlice), sums.data() + s * channels_);
    });
    add_as_tree(sums.data(), slices, channels_);
    write(row, sums.data());
  }
  void add(int64_t begin, int64_t end, T* sum) const {
    for (int64_t place = begin; place < end; ++place) {
      const Storage* from = x_ + map_.columns()[place] * channels_;
      if (weights_ == nullptr) {
        for (int64_t c = 0; c < channels_; ++c) sum[c] += static_cast<T>(from[c]);
      } else {
        const T weight = static_cast<T>(weights_[map_.entry(place)]);
        for (int64_t c = 0; c < channels_; ++c) sum[c] += weight * static_cast<T>(from[c]);
      }
    }
  }
  void write(int64_t row, const T* sum) const {
    for (int64_t c = 0; c < channels_; ++c) y_[row * channels_ + c] = static_cast<Storage>(sum[c]);
  }

  const RowMap& map_;
  const Storage* x_;
  const Storage* weights_;
  int64_t channels_;
  Storage* y_;
};

}  // namespace

at::Tensor row_sum(const at::Tensor& x, const RowMapPtr& map, const MaybeTensor& weights) {
  at::Tensor y = at::empty({map->out_size(), x.size(1)}, x.options());
  if (y.numel() == 0) return y;
  const at::Tensor rows = x.contiguous();
  const at::Tensor given = weights ? weights->to(x.scalar_type()).contiguous() : at::Tensor();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::row_sum", [&] {
    RowSum<scalar_t>(*map, rows, given.defined() ? given.const_data_ptr<scalar_t>() : nullptr, y).run();
  });
  return y;
}

at::Tensor row_dot(const at::Tensor& g, const at::Tensor& x, const RowMapPtr& map) {
  at::Tensor w = at::empty({map->entry_count()}, x.options());
  const at::Tensor left = g.contiguous(), right = x.contiguous();
  const int64_t channels = x.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::row_dot", [&] {
    const scalar_t *a = left.const_data_ptr<scalar_t>(), *b = right.const_data_ptr<scalar_t>();
    scalar_t* out = w.mutable_data_ptr<scalar_t>();
    parallel_for(0, map->out_size(), grain(channels), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t place = map->bounds()[row]; place < map->bounds()[row + 1]; ++place) {
          Compute<scalar_t> sum = 0;
          for (int64_t c = 0; c < channels; ++c)
            sum += static_cast<Compute<scalar_t>>(a[row * channels + c]) *
                   static_cast<Compute<scalar_t>>(b[map->columns()[place] * channels + c]);
          out[map->entry(place)] = static_cast<scalar_t>(sum);
        }
    });
  });
  return w;
}

at::Tensor row_argmax(const at::Tensor& x, const RowMapPtr& map) {
  const int64_t channels = x.size(1);
  at::Tensor chosen = at::empty({map->out_size(), channels}, x.options().dtype(at::kLong));
  const at::Tensor rows = x.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::row_argmax", [&] {
    const scalar_t* data = rows.const_data_ptr<scalar_t>();
    parallel_for(0, map->out_size(), grain(channels), [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> best(channels);
      for (int64_t row = begin; row < end; ++row) {
        int64_t* out = chosen.mutable_data_ptr<int64_t>() + row * channels;
        std::fill_n(out, channels, -1);
        for (int64_t place = map->bounds()[row]; place < map->bounds()[row + 1]; ++place) {
          const scalar_t* from = data + map->columns()[place] * channels;
          for (int64_t c = 0; c < channels; ++c)
            if (out[c] < 0 || (!(from[c] <= best[c]) && best[c] == best[c])) {
              best[c] = from[c];
              out[c] = map->entry(place);
            }
        }
      }
    });
  });
  return chosen;
}

at::Tensor row_pick(const at::Tensor& x, const RowMapPtr& map, const at::Tensor& chosen) {
  const int64_t channels = x.size(1);
  at::Tensor y = at::zeros({map->out_size(), channels}, x.options());
  const at::Tensor rows = x.contiguous(), choice = chosen.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::row_pick", [&] {
    const scalar_t* data = rows.const_data_ptr<scalar_t>();
    const int64_t* entry = choice.const_data_ptr<int64_t>();
    scalar_t* out = y.mutable_data_ptr<scalar_t>();
    parallel_for(0, map->out_size(), grain(channels), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t place = map->bounds()[row]; place < map->bounds()[row + 1]; ++place)
          for (int64_t c = 0; c < channels; ++c)
            if (entry[row * channels + c] == map->entry(place))
              out[row * channels + c] = data[map->columns()[place] * channels + c];
    });
  });
  return y;
}

at::Tensor row_unpick(const at::Tensor& g, const RowMapPtr& map, const at::Tensor& chosen) {
  const int64_t channels = g.size(1);
  const RowMapPtr back = map->transposed();
  at::Tensor dx = at::zeros({map->in_size(), channels}, g.options());
  const at::Tensor rows = g.contiguous(), choice = chosen.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, g.scalar_type(), "lockstep_sparse::row_unpick", [&] {
    const scalar_t* data = rows.const_data_ptr<scalar_t>();
    const int64_t* entry = choice.const_data_ptr<int64_t>();
    scalar_t* out = dx.mutable_data_ptr<scalar_t>();
    parallel_for(0, back->out_size(), grain(channels), [&](int64_t begin, int64_t end) {
      std::vector<Compute<scalar_t>> sum(channels);
      for (int64_t row = begin; row < end; ++row) {
        std::fill(sum.begin(), sum.end(), 0);
        for (int64_t place = back->bounds()[row]; place < back->bounds()[row + 1]; ++place) {
          const int64_t from = back->columns()[place] * channels;
          for (int64_t c = 0; c < channels; ++c)
            if (entry[from + c] == back->entry(place)) sum[c] += static_cast<Compute<scalar_t>>(data[from + c]);
        }
        for (int64_t c = 0; c < channels; ++c) out[row * channels + c] = static_cast<scalar_t>(sum[c]);
      }
    });
  });
  return dx;
}

at::Tensor column_sum(const at::Tensor& x) {
  const int64_t channels = x.size(1), slices = std::max<int64_t>(1, (x.size(0) + kRowSlice - 1) / kRowSlice);
  at::Tensor sum = at::empty({channels}, x.options());
  const at::Tensor rows = x.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::column_sum", [&] {
    using T = Compute<scalar_t>;
    const scalar_t* data = rows.const_data_ptr<scalar_t>();
    std::vector<T> sums(slices * channels, T(0));
    parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin * kRowSlice; row < std::min(end * kRowSlice, x.size(0)); ++row)
        for (int64_t c = 0; c < channels; ++c)
          sums[row / kRowSlice * channels + c] += static_cast<T>(data[row * channels + c]);
    });
    add_as_tree(sums.data(), slices, channels);
    for (int64_t c = 0; c < channels; ++c) sum.mutable_data_ptr<scalar_t>()[c] = static_cast<scalar_t>(sums[c]);
  });
  return sum;
}

}  // namespace lockstep::sparse::cpu
