// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradients/plan.h"

#include <algorithm>

namespace lockstep::parallel {
namespace {

// Elements of a piece: its float32 sum stays in the cache between addition and update.
constexpr int64_t kPieceElements = 32 << 10;
// Pieces begin at multiples of 64 bytes in a bucket as well.
constexpr int64_t kAlignElements = 64;

}  // namespace

int64_t piece_length(const at::Device& device, int64_t numel) {
  return device.is_cpu() ? kPieceElements : std::max<int64_t>(1, numel);
}

int64_t bucket_bytes(const at::Device& device) {
  return int64_t{device.is_cpu() ? 4 : 25} << 20;
}

GradientPlan GradientPlan::make(const FlatLayout& layout, std::span<const int64_t> order, int64_t bytes) {
  GradientPlan plan;
  plan.pieces_of.resize(layout.size());
  plan.buckets_of.resize(layout.size());
  std::vector<int64_t> open(layout.rows().size(), -1);  // the bucket that is being filled, for each row's dtype
  for (const int64_t parameter : order) {
    const FlatSlot& slot = layout.slot(parameter);
    const FlatRow& row = layout.rows()[slot.row];
    const int64_t limit = std::max<int64_t>(1, bytes / static_cast<int64_t>(c10::elementSize(row.dtype)));
    const int64_t length = piece_length(row.device, slot.numel);
    for (int64_t begin = 0; begin < slot.numel; begin += length) {
      int64_t& bucket = open[slot.row];
      if (bucket < 0 || plan.buckets[bucket].numel >= limit) {
        bucket = static_cast<int64_t>(plan.buckets.size());
        plan.buckets.push_back({row.dtype, 0, {}, {}});
      }
      Bucket& into = plan.buckets[bucket];
      const int64_t end = std::min(slot.numel, begin + length);
      into.pieces.push_back(static_cast<int64_t>(plan.pieces.size()));
      plan.pieces_of[parameter].push_back(into.pieces.back());
      plan.pieces.push_back({parameter, begin, end, bucket, into.numel});
      into.numel += (end - begin + kAlignElements - 1) / kAlignElements * kAlignElements;
      if (into.parameters.empty() || into.parameters.back() != parameter) {
        into.parameters.push_back(parameter);
        plan.buckets_of[parameter].push_back(bucket);
      }
    }
  }
  return plan;
}

}  // namespace lockstep::parallel
