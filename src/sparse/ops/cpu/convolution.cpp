// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/detail/parallel_for.h"
#include "sparse/ops/cpu/bf16_kernel.h"
#include "sparse/ops/cpu/matrix_kernel.h"
#include "sparse/ops/kernels.h"
#include "sparse/tasks.h"

// A tile of outputs keeps its sums in the second-level cache while all offsets pass: for each, the rows of its pairs
// are multiplied where they lie. Each output is written once, by one thread, in one order of additions, so the result
// does not depend on the number of threads, and tiles can go to whichever thread is free.

const lockstep::sparse::MatrixKernels<uint16_t, float>* lockstep::sparse::bf16_kernels() {
#if defined(LOCKSTEP_BF16_PRODUCTS)
  if (lockstep::cpu_level() >= lockstep::CpuLevel::avx512_bf16) return &isa_avx512_bf16::kernels();
#endif
  return nullptr;
}

namespace lockstep::sparse::cpu {
namespace {

/// Values as the kernels know them: bfloat16 goes by its bits.
template <class Storage>
using RowValue = std::conditional_t<std::is_same_v<Storage, at::BFloat16>, uint16_t, Storage>;

template <class Storage>
using Kernels = MatrixKernels<RowValue<Storage>, Compute<Storage>>;

template <class Storage>
const Kernels<Storage>& kernels() {
  if constexpr (std::is_same_v<Storage, at::BFloat16>)
    return *bf16_kernels();
  else if constexpr (std::is_same_v<Storage, double>)
    return LOCKSTEP_SELECT_ISA(matrix_kernels_f64)();
  else
    return LOCKSTEP_SELECT_ISA(matrix_kernels_f32)();
}

template <class Storage>
const RowValue<Storage>* values_of(const at::Tensor& tensor) {
  return reinterpret_cast<const RowValue<Storage>*>(tensor.const_data_ptr<Storage>());
}

template <class Storage>
RowValue<Storage>* values_of(at::Tensor& tensor) {
  return reinterpret_cast<RowValue<Storage>*>(tensor.mutable_data_ptr<Storage>());
}

/// Where the rows at some positions lie, from the column `from` on.
template <class Value>
void point_at_rows(const Value* data, int64_t stride, int64_t from, std::span<const int32_t> order,
                   const int32_t* positions, int64_t count, const Value** rows) {
  for (int64_t i = 0; i < count; ++i) rows[i] = data + row_of(order, positions[i]) * stride + from;
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
  using Value = RowValue<Storage>;
  using Sum = Compute<Storage>;

  Convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMap& map, bool transpose, int64_t groups,
              at::Tensor& y)
      : map_(map),
        shape_(shape_of(weight, transpose, groups)),
        padded_(kernel_.padded(shape_.to)),
        size_(shape_.from * padded_),
        weight_(weight),
        x_(values_of<Storage>(x)),
        y_(values_of<Storage>(y)) {}

  void run() {
    map_.tile_bounds(0);
    if (shape_.groups == 1 && goes_by_offset(map_.out_size() * padded_)) return run_by_offset();
    const at::Tensor packed = at::empty({shape_.offsets * shape_.groups * size_}, weight_.options());
    auto* const panels = reinterpret_cast<Value*>(packed.mutable_data_ptr<Storage>());
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
    std::vector<Sum> sums;
    std::vector<const Value*> in;
    std::vector<Sum*> out;
  };

  /// The weights of an offset and a group, in the order of offsets, as panels.
  void pack(int64_t matrix, Value* panels) const {
    const int64_t offset = matrix / shape_.groups, group = matrix % shape_.groups;
    kernel_.pack(values_of<Storage>(weight_) + offset * shape_.offset_stride + group * shape_.group_stride, shape_.from,
                 shape_.to, shape_.row_stride, shape_.column_stride, panels);
  }

  void run_by_offset() {
    Scratch scratch(map_.out_size() * padded_);
    std::vector<Value> panels(size_);
    for (int64_t k = 0; k < shape_.offsets; ++k) {
      if (map_.pairs(k).count == 0) continue;
      pack(k, panels.data());
      for (int64_t tile = 0; tile < map_.tile_count(); ++tile) add(tile, k, 0, panels.data(), 0, scratch);
    }
    write(0, map_.out_size(), 0, scratch);
  }

  void run_tile(int64_t tile, int64_t group, const Value* panels, Scratch& scratch) {
    const int64_t first = tile * kRows, rows = std::min(kRows, map_.out_size() - first);
    std::fill_n(scratch.sums.begin(), rows * padded_, Sum(0));
    for (int64_t k = 0; k < shape_.offsets; ++k)
      add(tile, k, group, panels + (k * shape_.groups + group) * size_, first, scratch);
    write(first, rows, group, scratch);
  }

  /// The products of an offset's pairs in a tile, to sums that begin with the output `first`.
  void add(int64_t tile, int64_t offset, int64_t group, const Value* panels, int64_t first, Scratch& scratch) {
    const int64_t* bounds = map_.tile_bounds(offset);
    const int64_t begin = bounds[tile], count = bounds[tile + 1] - begin;
    if (count == 0) return;
    const KernelMap::Pairs pairs = map_.pairs(offset);
    point_at_rows(x_, shape_.groups * shape_.from, group * shape_.from, map_.in_order(), pairs.in + begin, count,
                  scratch.in.data());
    for (int64_t i = 0; i < count; ++i) scratch.out[i] = scratch.sums.data() + (pairs.out[begin + i] - first) * padded_;
    kernel_.multiply(scratch.in.data(), scratch.out.data(), count, shape_.from, shape_.to, panels);
  }

  void write(int64_t first, int64_t rows, int64_t group, const Scratch& scratch) {
    for (int64_t i = 0; i < rows; ++i)
      kernel_.store(scratch.sums.data() + i * padded_, shape_.to,
                    y_ + row_of(map_.out_order(), first + i) * shape_.groups * shape_.to + group * shape_.to);
  }

  const Kernels<Storage>& kernel_ = kernels<Storage>();
  const KernelMap& map_;
  Shape shape_;
  int64_t padded_;
  int64_t size_;  // of the panels of an offset and a group
  at::Tensor weight_;
  const Value* x_;
  Value* y_;
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
  using Value = RowValue<Storage>;
  using Sum = Compute<Storage>;

  WeightGradient(const at::Tensor& x, const at::Tensor& g, const KernelMap& map, int64_t groups, at::Tensor& dw)
      : map_(map),
        groups_(groups),
        in_(x.size(1) / groups),
        out_(g.size(1) / groups),
        padded_(kernel_.padded(out_)),
        size_(groups * in_ * padded_),
        slices_(map, size_),
        x_(values_of<Storage>(x)),
        g_(values_of<Storage>(g)),
        dw_(values_of<Storage>(dw)) {}

  void run() {
    map_.tile_bounds(0);
    if (slices_.slices == 1 && goes_by_offset(groups_ * (map_.in_size() * in_ + map_.out_size() * out_)))
      return run_by_offset();
    std::vector<Sum> sums(slices_.slices * slices_.offsets * size_);
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
        Sum* sum = sums.data() + k * slices_.slices * size_;
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
    std::vector<Value> packed;
    std::vector<const Value*> a, b;
  };

  void run_by_offset() {
    Scratch scratch(*this);
    std::vector<Sum> sum(size_);
    for (int64_t k = 0; k < map_.volume(); ++k) {
      std::ranges::fill(sum, Sum(0));
      for (int64_t tile = 0; tile < slices_.tiles; ++tile) add_tile(tile, k, sum.data(), scratch);
      write(k, sum.data());
    }
  }

  void add_tile(int64_t tile, int64_t offset, Sum* sums, Scratch& scratch) {
    const int64_t* bounds = map_.tile_bounds(offset);
    const int64_t at = bounds[tile], count = bounds[tile + 1] - at;
    if (count == 0) return;
    const KernelMap::Pairs pairs = map_.pairs(offset);
    for (int64_t group = 0; group < groups_; ++group) {
      point_at_rows(x_, groups_ * in_, group * in_, map_.in_order(), pairs.in + at, count, scratch.a.data());
      point_at_rows(g_, groups_ * out_, group * out_, map_.out_order(), pairs.out + at, count, scratch.b.data());
      kernel_.outer(scratch.a.data(), scratch.b.data(), count, in_, out_, sums + group * in_ * padded_,
                    scratch.packed.data());
    }
  }

  void write(int64_t offset, const Sum* sum) {
    for (int64_t i = 0; i < in_; ++i)
      for (int64_t group = 0; group < groups_; ++group)
        kernel_.store(sum + (group * in_ + i) * padded_, out_, dw_ + ((offset * in_ + i) * groups_ + group) * out_);
  }

  const Kernels<Storage>& kernel_ = kernels<Storage>();
  const KernelMap& map_;
  int64_t groups_, in_, out_, padded_, size_;
  Slices slices_;
  const Value* x_;
  const Value* g_;
  Value* dw_;
};

/// Whether values of a type are multiplied as they are. If not, one copy in float32 is made beforehand: a row that is
/// converted at each offset costs two to three times as much.
bool multiplies(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || (type == at::kBFloat16 && bf16_kernels() != nullptr);
}

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, bool transposed,
                       int64_t groups) {
  const bool in_pairs = x.size(1) / groups % 2 == 0;
  if (!multiplies(x.scalar_type()) || (x.scalar_type() == at::kBFloat16 && !in_pairs))
    return cpu::convolution(x.to(at::kFloat), weight.to(at::kFloat), map, transposed, groups).to(x.scalar_type());
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(2);
  at::Tensor y = at::empty({map->out_size(), channels}, x.options());
  if (y.numel() == 0) return y;
  if (x.size(1) == 0) return y.zero_();
  const at::Tensor rows = x.contiguous(), weights = weight.to(x.scalar_type()).contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "lockstep_sparse::convolution",
                                 [&] { Convolution<scalar_t>(rows, weights, *map, transposed, groups, y).run(); });
  return y;
}

at::Tensor convolution_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map, int64_t groups) {
  if (!multiplies(x.scalar_type()))
    return cpu::convolution_weight(x.to(at::kFloat), g.to(at::kFloat), map, groups).to(x.scalar_type());
  at::Tensor dw = at::empty({map->volume(), x.size(1) / groups, g.size(1)}, x.options());
  if (dw.numel() == 0) return dw;
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "lockstep_sparse::convolution_weight",
                                 [&] { WeightGradient<scalar_t>(rows, gradient, *map, groups, dw).run(); });
  return dw;
}

}  // namespace lockstep::sparse::cpu
