// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

/// Points on grids of integers: what clouds of points and sparse tensors have in common.
namespace lockstep::points {

struct Box;
struct SortedKeys;

/// Coordinates that are known to ascend, by batch index, then axis by axis, and all to differ, with the keys that they
/// are found by: a sparse tensor takes them as they are. A value: copies share their memory.
class SortedCoordinates {
 public:
  SortedCoordinates() = default;
  /// Takes int32 [N, 1 + D], contiguous, on the CPU, with batch indices of 0 or more, and packs the keys. The memory is
  /// shared and must not be written to any more. Throws Error, naming the row, where one doesn't come after the one
  /// before it.
  explicit SortedCoordinates(at::Tensor coordinates);

  bool defined() const { return coordinates_.defined(); }
  int64_t size() const { return coordinates_.size(0); }
  /// Throws Error where an operation has written to them since.
  const at::Tensor& coordinates() const;
  const std::shared_ptr<const Box>& box() const { return box_; }
  const std::shared_ptr<const SortedKeys>& keys() const { return keys_; }

 private:
  at::Tensor coordinates_;
  int64_t version_ = 0;  ///< of the tensor: it counts what is written
  std::shared_ptr<const Box> box_;
  std::shared_ptr<const SortedKeys> keys_;
};

}  // namespace lockstep::points
