// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <string_view>

#include "base/memory/block_heap.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kLarge = 128 << 10;

BlockHeap& large_blocks() {
  static auto* heap = new BlockHeap(size_t{1} << 40);  // outlives all tensors
  return *heap;
}

// Tensors on the CPU. As torch's own, it tells torch's profiler.
class TensorMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* block = bytes < kLarge ? nullptr : large_blocks().allocate(bytes);
    if (block == nullptr) block = c10::alloc_cpu(bytes);
    c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free(void* block) {
    if (block == nullptr) return;
    c10::profiledCPUMemoryReporter().Delete(block);
    large_blocks().has(block) ? large_blocks().free(block) : c10::free_cpu(block);
  }
};

bool user_has_settings() {
  for (const char* name :
       {"MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_"})
    if (std::getenv(name) != nullptr) return true;
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos;
}

// A preloaded allocator, or one that is linked in, comes before libc in the search for the symbol.
bool malloc_is_from_glibc() {
#if defined(__GLIBC__)
  Dl_info found{};
  void* symbol = dlsym(RTLD_DEFAULT, "malloc");
  return symbol != nullptr && dladdr(symbol, &found) != 0 && found.dli_fname != nullptr &&
         std::string_view(found.dli_fname).find("libc.so") != std::string_view::npos;
#else
  return false;
#endif
}

void tune() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);         // large blocks come from the heap too: those past 32 MiB are else always mapped anew
  mallopt(M_TRIM_THRESHOLD, -1);  // and the heap's end stays
  static TensorMemory tensors;
  c10::SetCPUAllocator(&tensors, /*priority=*/1);
#endif
}

AllocatorChoice decide() {
  const AllocatorChoice choice =
      detail::choose_allocator(std::getenv("LOCKSTEP_MALLOC"), malloc_is_from_glibc(), user_has_settings());
  if (choice == AllocatorChoice::tuned) tune();
  return choice;
}

}  // namespace

const char* describe(AllocatorChoice choice) noexcept {
  switch (choice) {
    case AllocatorChoice::tuned:
      return "glibc, tuned";
    case AllocatorChoice::by_user:
      return "glibc, as the environment says";
    case AllocatorChoice::as_is:
      return "as it is (LOCKSTEP_MALLOC=system)";
    case AllocatorChoice::not_glibc:
      return "not glibc's";
  }
  LOCKSTEP_ASSERT(!"an AllocatorChoice outside its enumeration");
}

AllocatorChoice detail::choose_allocator(const char* request, bool is_glibc, bool has_user_settings) {
  const std::string_view asked = request == nullptr ? "" : request;
  require(asked.empty() || asked == "tuned" || asked == "system", "LOCKSTEP_MALLOC", "got '", asked,
          "', expected tuned or system");
  if (asked == "system") return AllocatorChoice::as_is;
  if (!is_glibc) return AllocatorChoice::not_glibc;
  return has_user_settings ? AllocatorChoice::by_user : AllocatorChoice::tuned;
}

AllocatorChoice tune_allocator() {
  static const AllocatorChoice choice = decide();
  return choice;
}

}  // namespace lockstep
