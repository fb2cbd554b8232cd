// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lockstep/sparse/coordinate_map.h"
#include "lockstep/sparse/detail/device_copies.h"

namespace lockstep::sparse {

class RowMap;

/// Which input row meets which output row at each offset of a kernel.
///
/// For each offset there is a list of pairs (input position, output position), positions in the sorted order of the
/// two coordinate maps. A list ascends in both. So one list serves the forward pass (cut into tiles of outputs), the
/// input gradient (cut into tiles of inputs) and the weight gradient (cut anywhere); the transposed map is the same
/// lists with the two sides exchanged; and offset -o of a map onto itself is the list of +o, exchanged too.
/// Rows are 32 bits wide, counts of pairs 64.
class KernelMap : public torch::CustomClassHolder {
 public:
  /// Outputs are computed in tiles of this many positions.
  static constexpr int64_t kTileRows = 256;

  struct Pairs {
    const int32_t* in;
    const int32_t* out;
    int64_t count;
  };

  /// All pairs with in = out + offset, `offsets` holding D values for each. Throws Error where D differs.
  static c10::intrusive_ptr<KernelMap> build(CoordinateMapPtr in, CoordinateMapPtr out,
                                             std::span<const int64_t> offsets);
  /// The same, with the lists of pairs left until somebody asks for them: devices search for themselves.
  static c10::intrusive_ptr<KernelMap> deferred(CoordinateMapPtr in, CoordinateMapPtr out,
                                                std::span<const int64_t> offsets);
  /// Pairs each row of a map of `rows` rows with itself at the one offset: a dense layer.
  static c10::intrusive_ptr<KernelMap> identity(int64_t rows);

  int64_t volume() const;
  int64_t in_size() const { return side(0).size; }
  int64_t out_size() const { return side(1).size; }
  int64_t pair_count() const;

  Pairs pairs(int64_t offset) const;
  /// Row of each input or output position; empty where they are the same.
  std::span<const int32_t> in_order() const { return side(0).order; }
  std::span<const int32_t> out_order() const { return side(1).order; }

  int64_t tile_count() const { return (out_size() + kTileRows - 1) / kTileRows; }
  /// tile_count() + 1 bounds in pairs(offset): tile t of outputs has pairs bounds[t] .. bounds[t + 1] - 1.
  const int64_t* tile_bounds(int64_t offset) const;

  /// The same pairs with input and output exchanged; shares all memory.
  c10::intrusive_ptr<KernelMap> transposed() const;

  /// The pairs of one offset as rows, int64 [2, pairs]: inputs, then outputs.
  at::Tensor rows(int64_t offset) const;

  /// For each output row the input rows it meets, in order of the offsets: what pooling works on. Made once.
  c10::intrusive_ptr<RowMap> row_map() const;

  /// Bytes of what has been made so far, on the CPU.
  int64_t bytes() const;

  /// What it was made of: null maps and one offset for an identity. `offsets` lead from outputs to inputs.
  const CoordinateMapPtr& in_map() const { return side(0).map; }
  const CoordinateMapPtr& out_map() const { return side(1).map; }
  std::vector<int64_t> offsets() const;
  /// Of this direction; the transposed map has its own.
  const DeviceCopies& device_copies() const { return side(1).copies; }

 private:
  struct Side {
    int64_t size = 0;
    std::span<const int32_t> order;
    CoordinateMapPtr map;  // keeps `order` alive
    DeviceCopies copies;
    // Made when first asked for.
    std::once_flag tiles_once, rows_once;
    std::vector<int64_t> tiles;
    std::atomic<bool> has_tiles = false;  // for those who only look
    c10::intrusive_ptr<RowMap> rows;
  };
  struct Body;
  KernelMap(std::shared_ptr<Body> body, bool exchanged) : body_(std::move(body)), exchanged_(exchanged) {}
  Side& side(int which) const;
  const Body& searched() const;

  std::shared_ptr<Body> body_;
  bool exchanged_ = false;
};

using KernelMapPtr = c10::intrusive_ptr<KernelMap>;

}  // namespace lockstep::sparse
