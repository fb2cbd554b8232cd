// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

/// More are a mistake, such as a label that is none: names alone of so many take half a gigabyte.
inline constexpr int64_t kMostClasses = int64_t{1} << 24;

/// Examples that lie in memory as compactly as they came: inputs [N, ...] uint8 or float32, contiguous, on the CPU.
class MemoryDataset : public Dataset {
 public:
  /// Targets were checked by whoever knows their file.
  MemoryDataset(DatasetInfo info, at::Tensor inputs, std::vector<int64_t> targets);
  Normalization normalization() const override;
  bool holds_bytes() const override { return inputs_.scalar_type() == at::kByte; }

 protected:
  void read_inputs(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs) const override;
  void read_bytes(std::span<const int64_t> ids, Layout layout, uint8_t* inputs) const override;
  void fetch_targets(std::span<const int64_t> ids, int64_t* targets) const override;

 private:
  template <class Value, class Write>
  void for_each_example(std::span<const int64_t> ids, const Write& write) const;

  at::Tensor inputs_;
  std::vector<int64_t> targets_;
  mutable std::once_flag once_;
  mutable Normalization normalization_;
};

/// Bytes or floats of one example, [channels, area], as floats in a layout.
template <class Value>
void write_example(const Value* in, int64_t channels, int64_t area, Layout layout, Affine affine, float* out);
extern template void write_example(const uint8_t*, int64_t, int64_t, Layout, Affine, float*);
extern template void write_example(const float*, int64_t, int64_t, Layout, Affine, float*);
/// Bytes as they are.
void write_example(const uint8_t* in, int64_t channels, int64_t area, Layout layout, uint8_t* out);

/// Sums over the bytes of images [channels, area]: exact, so the order of adding does not matter.
class ByteMoments {
 public:
  explicit ByteMoments(int64_t channels) : counts_(channels) {}
  void add(const uint8_t* image, int64_t area);
  Normalization normalization() const;

 private:
  std::vector<std::array<int64_t, 256>> counts_;
};

/// How many channels a normalisation tells apart, and the values of each.
int64_t channels_of(const DatasetInfo& info);

}  // namespace lockstep::data
