// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/rules/rule_batch.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

namespace lockstep::parallel {

void RuleTableDraft::add(const void* row, size_t size, int64_t count) {
  const auto* bytes = static_cast<const std::byte*>(row);
  rows_.insert(rows_.end(), bytes, bytes + size);
  for (int64_t chunk = 0; chunk * RuleChunk::kElements < count; ++chunk)
    chunks_.push_back({count_, static_cast<int32_t>(chunk)});
  ++count_;
}

RuleTable RuleTableDraft::upload(c10::Device device, at::Tensor& memory) const {
  const size_t bytes = chunks_.size() * sizeof(RuleChunk);
  // Of pageable memory a copy would wait for all that the stream holds.
  const at::Tensor staged = at::empty({static_cast<int64_t>(rows_.size() + bytes)},
                                      at::TensorOptions(at::kByte).pinned_memory(device.is_cuda()));
  auto* const to = static_cast<std::byte*>(staged.mutable_data_ptr());
  std::ranges::copy(rows_, to);
  if (bytes > 0) std::memcpy(to + rows_.size(), chunks_.data(), bytes);
  memory = staged.to(device, /*non_blocking=*/true);
  const auto* const there = static_cast<const std::byte*>(memory.const_data_ptr());
  return {there, reinterpret_cast<const RuleChunk*>(there + rows_.size()), static_cast<int64_t>(chunks_.size())};
}

RuleTableDraft& RuleBatch::group(Launch launch) {
  const auto found = std::ranges::find(groups_, launch, &Group::launch);
  if (found != groups_.end()) return found->table;
  return groups_.emplace_back(Group{launch, {}}).table;
}

void RuleBatch::run() {
  if (!held_.empty()) {
    const c10::Device device = held_[0].device();
    const c10::DeviceGuard guard(device);
    for (const Group& group : groups_) {
      if (group.table.chunks().empty()) continue;
      at::Tensor memory;
      group.launch(group.table.upload(device, memory));
    }
  }
  groups_.clear();
  held_.clear();
}

}  // namespace lockstep::parallel
