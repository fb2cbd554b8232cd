// SPDX-License-Identifier: Apache-2.0
#include "base/memory/block_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kOpened = size_t{64} << 20;  // at once: each time is a call of the kernel

constexpr size_t rounded_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

// In front of a block, a line of its own. It also keeps blocks of a power of two from beginning at addresses that
// share their lines in the caches.
size_t& size_of(std::byte* part) {
  return *reinterpret_cast<size_t*>(part);
}

}  // namespace

BlockHeap::BlockHeap(size_t addresses) {
  constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (void* range = mmap(nullptr, addresses, PROT_NONE, kReserved, -1, 0); range != MAP_FAILED) {
    begin_ = static_cast<std::byte*>(range);
    end_ = begin_ + addresses;
  }
  used_ = open_ = begin_;
}

BlockHeap::~BlockHeap() {
  if (begin_ != nullptr) munmap(begin_, end_ - begin_);
}

void* BlockHeap::allocate(size_t bytes) {
  if (bytes > static_cast<size_t>(end_ - begin_)) return nullptr;
  const size_t size = rounded_up(bytes, kLine) + kLine;
  const Lock lock(mutex_);
  std::byte* part = take(size);
  if (part == nullptr) part = grow(size);
  if (part == nullptr) return nullptr;
  size_of(part) = size;
  return part + kLine;
}

void BlockHeap::free(void* block) noexcept {
  std::byte* const part = static_cast<std::byte*>(block) - kLine;
  const Lock lock(mutex_);
  give(part, size_of(part));
}

// The smallest free part that is large enough, of equal ones the first: so the range's end stays free for large blocks.
std::byte* BlockHeap::take(size_t bytes) {
  const auto found = by_size_.lower_bound({bytes, nullptr});
  if (found == by_size_.end()) return nullptr;
  const auto [size, part] = *found;
  remove_free(part, size);
  if (size > bytes) add_free(part + bytes, size - bytes);
  return part;
}

// Behind all blocks, and behind the free part that may be last of all.
std::byte* BlockHeap::grow(size_t bytes) {
  std::byte* part = used_;
  if (!by_place_.empty())
    if (const auto last = std::prev(by_place_.end()); last->first + last->second == used_) part = last->first;
  if (bytes > static_cast<size_t>(end_ - part)) return nullptr;
  if (std::byte* const end = part + bytes; end > open_) {
    const size_t more = std::min<size_t>(rounded_up(end - open_, kOpened), end_ - open_);
    if (mprotect(open_, more, PROT_READ | PROT_WRITE) != 0) return nullptr;
    open_ += more;
  }
  if (part != used_) remove_free(part, used_ - part);
  used_ = part + bytes;
  return part;
}

void BlockHeap::give(std::byte* part, size_t bytes) {
  const auto next = by_place_.lower_bound(part);
  if (next != by_place_.begin())
    if (const auto [before, size] = *std::prev(next); before + size == part) {
      part = before;
      bytes += size;
      remove_free(before, size);
    }
  if (next != by_place_.end())
    if (const auto [behind, size] = *next; part + bytes == behind) {
      bytes += size;
      remove_free(behind, size);
    }
  add_free(part, bytes);
}

void BlockHeap::add_free(std::byte* part, size_t bytes) {
  by_place_.emplace(part, bytes);
  by_size_.emplace(bytes, part);
}

void BlockHeap::remove_free(std::byte* part, size_t bytes) {
  by_place_.erase(part);
  by_size_.erase({bytes, part});
}

}  // namespace lockstep
