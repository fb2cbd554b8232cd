// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep {

/// What tune_allocator() found or did.
enum class AllocatorChoice : uint8_t {
  tuned,      ///< glibc's malloc, made to keep the memory of a step for the next, and a heap for large tensors
  by_user,    ///< left alone: the environment's MALLOC_... or GLIBC_TUNABLES say how glibc's malloc is to be
  as_is,      ///< left alone: LOCKSTEP_MALLOC=system
  not_glibc,  ///< left alone: malloc is another's (mimalloc or jemalloc preloaded, a sanitizer's, musl's)
};

/// "glibc, tuned", ...
const char* describe(AllocatorChoice choice) noexcept;

/// Called by programs (not by the library) when they start, before they have threads or tensors: what a training step
/// frees is kept for the next step. glibc's malloc as it comes gives large blocks and the end of its heap back to the
/// kernel, and the next step pays for the same pages again: zeroed, a fault each. Large tensors get a heap of their
/// own, one for all threads; each thread keeps an arena of malloc for what is small. docs/decisions/006 has figures.
/// The process keeps its peak memory until it ends.
///
/// LOCKSTEP_MALLOC=system leaves malloc alone, =tuned (the default) does not. May be called again: the first call
/// decides. Throws Error when LOCKSTEP_MALLOC is anything else.
AllocatorChoice tune_allocator();

namespace detail {
/// What to do, given LOCKSTEP_MALLOC (may be null), whether malloc is glibc's, and whether the user has set it up.
AllocatorChoice choose_allocator(const char* request, bool is_glibc, bool has_user_settings);
}  // namespace detail

}  // namespace lockstep
