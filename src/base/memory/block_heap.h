// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/detail/guarded.h"

namespace lockstep {

/// Large blocks of all threads, from one range of addresses. What one thread frees another may take, free neighbours
/// join, and pages stay: the next step finds those of the step before.
class BlockHeap {
 public:
  /// `addresses`: bytes of the range. Memory is taken when a block first needs it.
  explicit BlockHeap(size_t addresses);
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;

  /// Aligned to a cache line. Null where the range or the memory is used up.
  void* allocate(size_t bytes);
  void free(void* block) noexcept;
  bool has(const void* block) const noexcept { return block >= begin_ && block < end_; }

 private:
  using Part = std::pair<size_t, std::byte*>;  // its size, and where it begins

  std::byte* take(size_t bytes) LOCKSTEP_REQUIRES(mutex_);
  std::byte* grow(size_t bytes) LOCKSTEP_REQUIRES(mutex_);
  void give(std::byte* part, size_t bytes) LOCKSTEP_REQUIRES(mutex_);
  void add_free(std::byte* part, size_t bytes) LOCKSTEP_REQUIRES(mutex_);
  void remove_free(std::byte* part, size_t bytes) LOCKSTEP_REQUIRES(mutex_);

  std::byte* begin_ = nullptr;
  std::byte* end_ = nullptr;

  Mutex mutex_;
  std::byte* used_ LOCKSTEP_GUARDED_BY(mutex_);  // behind it nothing has been a block yet
  std::byte* open_ LOCKSTEP_GUARDED_BY(mutex_);  // behind it nothing may be touched yet
  // What is free before used_, in two orders.
  std::map<std::byte*, size_t> by_place_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<Part> by_size_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
