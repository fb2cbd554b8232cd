// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/detail/parallel_for.h"
#include "sparse/ops/cpu/matrix_kernel.h"
#include "sparse/ops/kernels.h"
#include "sparse/tasks.h"

// A tile of outputs keeps its sums in the second-level cache while all offsets pass: for each, the rows of its pairs
// are multiplied where they lie. Each output is written once, by one thread, in one order of additions, so the result
// does not depend on the number of threads, and tiles can go to whichever thread is free.

namespace lockstep::sparse::cpu {
namespace {

template <class T>
const MatrixKernels<T>& kernels() {
  if constexpr (std::is_same_v<T, double>)
    return LOCKSTEP_SELECT_ISA(matrix_kernels_f64)();
  else
    return LOCKSTEP_SELECT_ISA(matrix_kernels_f32)();
}

/// Rows as the kernels take them: where they lie when they have the compute type, else converted into `panel`.
template <class Storage, class T>
void point_at_rows(const Storage* data, int64_t stride, int64_t from, int64_t width, std::span<const int32_t> order,
                   const int32_t* positions, int64_t count, std::vector<T>& panel, const T** rows) {
  if constexpr (std::is_same_v<Storage, T>) {
    for (int64_t i = 0; i < count; ++i) rows[i] = data + row_of(order, positions[i]) * stride + from;
  } else {
    panel.resize(std::max<size_t>(panel.size(), count * width));
    for (int64_t i = 0; i < count; ++i) {
      const Storage* source = data + row_of(order, positions[i]) * stride + from;
      T* target = panel.data() + i * width;
      for (int64_t c = 0; c < width; ++c) target[c] = static_cast<T>(source[c]);
      rows[i] = target;
    }
  }
}

/// Channels of one group on both sides of a product, and where its weights lie.
struct Shape {
  int64_t offsets, groups, from, to;  // channels of a group
  int64_t row_stride, column_stride, offset_stride, group_stride;
};

Shape shape_of(const at::Tensor& weight, bool transpose, int64_t groups) {
  const int64_t in = weight.size(1), all_out = weight.size(2), out = all_out / groups;
  if (transpose) return {weight.size(0), groups, out, in, 1, all_out, in * all_out, out};
  return {weight.size(0), groups, in, out, all_out, 1, in * all_out, out};
}

/// A small map, such as those of a network's deepest layers, has little to compute for each weight. Where one thread
/// does it all, it then goes offset by offset, and what belongs to an offset stays in the second-level cache. `values`
/// are those that must stay there for all offsets.
bool goes_by_offset(int64_t values) {
  constexpr int64_t kMost = int64_t{1} << 17;
  return values <= kMost && at::get_num_threads() == 1;
}

template <class Storage>
class Convolution {
 public:
  using T = Compute<Storage>;

  Convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMap& map, bool transpose, int64_t groups,
              at::Tensor& y)
      : map_(map),
        shape_(shape_of(weight, transpose, groups)),
        padded_(kernel_.padded(shape_.to)),
        size_(shape_.from * padded_),
        weight_(weight.to(c10::CppTypeToScalarType<T>::value)),
        x_(x.const_data_ptr<Storage>()),
        y_(y.mutable_data_ptr<Storage>()) {}

  void run() {
    map_.tile_bounds(0);
    if (shape_.groups == 1 && goes_by_offset(map_.out_size() * padded_)) return run_by_offset();
    const at::Tensor packed = at::empty({shape_.offsets * shape_.groups * size_}, weight_.options());
    T* panels = packed.mutable_data_ptr<T>();
    parallel_for(0, shape_.offsets * shape_.groups, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, size_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) pack(i, panels + i * size_);
                 });
    for_each_task(
        map_.tile_count(), [&] { return Scratch(kRows * padded_); },
        [&](int64_t tile, Scratch& scratch) {
          for (int64_t group = 0; group < shape_.groups; ++group) run_tile(tile, group, panels, scratch);
        });
  }

 private:
  static constexpr int64_t kRows = KernelMap::kTileRows;

  struct Scratch {
    explicit Scratch(int64_t values) : sums(values), in(kRows), out(kRows) {}
    std::vector<T> sums, panel;
    std::vector<const T*> in;
    std::vector<T*> out;
  };

  /// The weights of an offset and a group, in the order of offsets, as panels.
  void pack(int64_t matrix, T* panels) const {
    const int64_t offset = matrix / shape_.groups, group = matrix % shape_.groups;
    kernel_.pack(weight_.const_data_ptr<T>() + offset * shape_.offset_stride + group * shape_.group_stride, shape_.from,
                 shape_.to, shape_.row_stride, shape_.column_stride, panels);
  }

  void run_by_offset() {
    Scratch scratch(map_.out_size() * padded_);
    std::vector<T> panels(size_);
    for (int64_t k = 0; k < shape_.offsets; ++k) {
      if (map_.pairs(k).count == 0) continue;
      pack(k, panels.data());
      for (int64_t tile = 0; tile < map_.tile_count(); ++tile) add(tile, k, 0, panels.data(), 0, scratch);
    }
    write(0, map_.out_size(), 0, scratch);
  }

  void run_tile(int64_t tile, int64_t group, const T* panels, Scratch& scratch) {
    const int64_t first = tile * kRows, rows = std::min(kRows, map_.out_size() - first);
    std::fill_n(scratch.sums.begin(), rows * padded_, T(0));
    for (int64_t k = 0; k < shape_.offsets; ++k)
      add(tile, k, group, panels + (k * shape_.groups + group) * size_, first, scratch);
    write(first, rows, group, scratch);
  }

  /// The products of an offset's pairs in a tile, to sums that begin with the output `first`.
  void add(int64_t tile, int64_t offset, int64_t group, const T* panels, int64_t first, Scratch& scratch) {
    const int64_t* bounds = map_.tile_bounds(offset);
    const int64_t begin = bounds[tile], count = bounds[tile + 1] - begin;
    if (count == 0) return;
    const KernelMap::Pairs pairs = map_.pairs(offset);
    point_at_rows(x_, shape_.groups * shape_.from, group * shape_.from, shape_.from, map_.in_order(), pairs.in + begin,
                  count, scratch.panel, scratch.in.data());
    for (int64_t i = 0; i < count; ++i) scratch.out[i] = scratch.sums.data() + (pairs.out[begin + i] - first) * padded_;
    kernel_.multiply(scratch.in.data(), scratch.out.data(), count, shape_.from, shape_.to, panels);
  }

  void write(int64_t first, int64_t rows, int64_t group, const Scratch& scratch) {
    for (int64_t i = 0; i < rows; ++i) {
      const T* sum = scratch.sums.data() + i * padded_;
      Storage* out = y_ + row_of(map_.out_order(), first + i) * shape_.groups * shape_.to + group * shape_.to;
      for (int64_t c = 0; c < shape_.to; ++c) out[c] = static_cast<Storage>(sum[c]);
    }
  }

  const MatrixKernels<T>& kernel_ = kernels<T>();
  const KernelMap& map_;
  Shape shape_;
  int64_t padded_;
  int64_t size_;  // of the panels of an offset and a group
  at::Tensor weight_;
  const Storage* x_;
  Storage* y_;
};

/// How the sums of a weight gradient are cut up; it follows from sizes alone, so the result does too. A slice is a
/// range of output tiles with sums of its own; those of an offset are added as a tree. Tiles go through a chunk of
/// offsets one after the other, so that their rows are fetched once and not once for each offset.
struct Slices {
  static constexpr int64_t kTiles = 8, kMost = 8, kValues = int64_t{1} << 24, kChunks = 3;
  int64_t tiles, offsets, slices, chunks;

  Slices(const KernelMap& map, int64_t size)
      : tiles(map.tile_count()),
        offsets(map.volume()),
        slices(std::clamp<int64_t>(std::min(tiles / kTiles, kValues / (offsets * size)), 1, kMost)),
        chunks(std::min(kChunks, offsets)) {}
  int64_t tasks() const { return slices * chunks; }
  int64_t first_tile(int64_t slice) const { return tiles * slice / slices; }
  int64_t first_offset(int64_t chunk) const { return offsets * chunk / chunks; }
};

template <class Storage>
class WeightGradient {
 public:
  using T = Compute<Storage>;

  WeightGradient(const at::Tensor& x, const at::Tensor& g, const KernelMap& map, int64_t groups, at::Tensor& dw)
      : map_(map),
        groups_(groups),
        in_(x.size(1) / groups),
        out_(g.size(1) / groups),
        padded_(kernel_.padded(out_)),
        size_(groups * in_ * padded_),
        slices_(map, size_),
        x_(x.const_data_ptr<Storage>()),
        g_(g.const_data_ptr<Storage>()),
        dw_(dw.mutable_data_ptr<Storage>()) {}

  void run() {
    map_.tile_bounds(0);
    if (slices_.slices == 1 && goes_by_offset(groups_ * (map_.in_size() * in_ + map_.out_size() * out_)))
      return run_by_offset();
    std::vector<T> sums(slices_.slices * slices_.offsets * size_);
    for_each_task(
        slices_.tasks(), [&] { return Scratch(*this); },
        [&](int64_t task, Scratch& scratch) {
          const int64_t slice = task / slices_.chunks, chunk = task % slices_.chunks;
          for (int64_t tile = slices_.first_tile(slice); tile < slices_.first_tile(slice + 1); ++tile)
            for (int64_t k = slices_.first_offset(chunk); k < slices_.first_offset(chunk + 1); ++k)
              add_tile(tile, k, sums.data() + (k * slices_.slices + slice) * size_, scratch);
        });
    parallel_for(0, map_.volume(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        T* sum = sums.data() + k * slices_.slices * size_;
        add_as_tree(sum, slices_.slices, size_);
        write(k, sum);
      }
    });
  }

 private:
  struct Scratch {
    explicit Scratch(const WeightGradient& of)
        : packed(of.kernel_.outer_scratch(KernelMap::kTileRows, of.in_)),
          a(KernelMap::kTileRows),
          b(KernelMap::kTileRows) {}
    std::vector<T> packed, a_panel, b_panel;
    std::vector<const T*> a, b;
  };

  void run_by_offset() {
    Scratch scratch(*this);
    std::vector<T> sum(size_);
    for (int64_t k = 0; k < map_.volume(); ++k) {
      std::ranges::fill(sum, T(0));
      for (int64_t tile = 0; tile < slices_.tiles; ++tile) add_tile(tile, k, sum.data(), scratch);
      write(k, sum.data());
    }
  }

  void add_tile(int64_t tile, int64_t offset, T* sums, Scratch& scratch) {
    const int64_t* bounds = map_.tile_bounds(offset);
    const int64_t at = bounds[tile], count = bounds[tile + 1] - at;
    if (count == 0) return;
    const KernelMap::Pairs pairs = map_.pairs(offset);
    for (int64_t group = 0; group < groups_; ++group) {
      point_at_rows(x_, groups_ * in_, group * in_, in_, map_.in_order(), pairs.in + at, count, scratch.a_panel,
                    scratch.a.data());
      point_at_rows(g_, groups_ * out_, group * out_, out_, map_.out_order(), pairs.out + at, count, scratch.b_panel,
                    scratch.b.data());
      kernel_.outer(scratch.a.data(), scratch.b.data(), count, in_, out_, sums + group * in_ * padded_,
                    scratch.packed.data());
    }
  }

  void write(int64_t offset, const T* sum) {
    for (int64_t i = 0; i < in_; ++i)
      for (int64_t group = 0; group < groups_; ++group)
        for (int64_t j = 0; j < out_; ++j)
          dw_[((offset * in_ + i) * groups_ + group) * out_ + j] =
              static_cast<Storage>(sum[(group * in_ + i) * padded_ + j]);
  }

  const MatrixKernels<T>& kernel_ = kernels<T>();
  const KernelMap& map_;
  int64_t groups_, in_, out_, padded_, size_;
  Slices slices_;
  const Storage* x_;
  const Storage* g_;
  Storage* dw_;
};

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, bool transposed,
                       int64_t groups) {
  // Rows are converted once, by vectors, and not at each offset: two to three times as fast, the same bits.
  if (x.scalar_type() == at::kHalf)
    return cpu::convolution(x.to(at::kFloat), weight, map, transposed, groups).to(at::kHalf);
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(2);
  at::Tensor y = at::empty({map->out_size(), channels}, x.options());
  if (y.numel() == 0) return y;
  if (x.size(1) == 0) return y.zero_();
  const at::Tensor rows = x.contiguous(), weights = weight.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "lockstep_sparse::convolution",
                                 [&] { Convolution<scalar_t>(rows, weights, *map, transposed, groups, y).run(); });
  return y;
}

at::Tensor convolution_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map, int64_t groups) {
  if (x.scalar_type() == at::kHalf)
    return cpu::convolution_weight(x.to(at::kFloat), g.to(at::kFloat), map, groups).to(at::kHalf);
  at::Tensor dw = at::empty({map->volume(), x.size(1) / groups, g.size(1)}, x.options());
  if (dw.numel() == 0) return dw;
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "lockstep_sparse::convolution_weight",
                                 [&] { WeightGradient<scalar_t>(rows, gradient, *map, groups, dw).run(); });
  return dw;
}

}  // namespace lockstep::sparse::cpu
