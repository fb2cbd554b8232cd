// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

/// Choosing between copies of one source file that were compiled for several instruction sets.
///
/// A kernel's source is named in `lockstep_isa_sources(TARGET kernel.cpp)`, which compiles it once a level, and puts
/// its code in `namespace LOCKSTEP_ISA`. Its header declares every copy, its caller picks one at run time:
///
///     // kernel.h                                          // kernel.cpp, compiled once a level
///     namespace lockstep {                                 namespace lockstep::LOCKSTEP_ISA {
///     LOCKSTEP_DECLARE_ISA(                                void add(float* into, const float* from, long n) { ... }
///         void add(float* into, const float* from, long n)) }
///     }
///     LOCKSTEP_SELECT_ISA(add)(into, from, n);             // the caller
///
/// A trap to keep out of such files: a template or an inline function of a shared header (std::vector, std::min where
/// it is not inlined) is emitted in every copy under one name, the linker keeps any one of them, and an AVX-512 copy
/// then runs on a machine without AVX-512. So they hold raw pointers, plain loops, intrinsics and functions in an
/// anonymous namespace, and include no header whose inline functions they would call. The test `isa_objects` fails
/// when one of these objects holds such a (weak) symbol.
///
/// A build for one machine (LOCKSTEP_ISA) defines LOCKSTEP_ONE_ISA: there is one copy then, and nothing to choose.
#if !defined(__x86_64__) && !defined(LOCKSTEP_ONE_ISA)
#define LOCKSTEP_ONE_ISA isa_baseline
#endif
#if defined(LOCKSTEP_ONE_ISA)
#define LOCKSTEP_DECLARE_ISA(...) \
  namespace LOCKSTEP_ONE_ISA {    \
  __VA_ARGS__;                    \
  }
#define LOCKSTEP_SELECT_ISA(function) (&LOCKSTEP_ONE_ISA::function)
#else
#define LOCKSTEP_DECLARE_ISA(...) \
  namespace isa_baseline {        \
  __VA_ARGS__;                    \
  }                               \
  namespace isa_avx2 {            \
  __VA_ARGS__;                    \
  }                               \
  namespace isa_avx512 {          \
  __VA_ARGS__;                    \
  }
#define LOCKSTEP_SELECT_ISA(function) \
  ::lockstep::detail::select_isa(&isa_baseline::function, &isa_avx2::function, &isa_avx512::function)
#endif

namespace lockstep {

/// The instruction sets that our own kernels are compiled for, worst first. `avx2` stands for AVX2, FMA and F16C;
/// `avx512` for these and AVX-512 F, BW, DQ and VL; `avx512_bf16` for these and AVX512-BF16, for which products of
/// bfloat16 alone have a copy. A CPU that is not x86-64 has `baseline` alone.
enum class CpuLevel { baseline, avx2, avx512, avx512_bf16 };

/// "baseline", "avx2", "avx512" or "avx512_bf16".
const char* to_string(CpuLevel level) noexcept;

/// The inverse of to_string. Throws Error on any other text, naming `operation`.
CpuLevel parse_cpu_level(const char* operation, std::string_view text);

/// The level that kernels run at: the best of this CPU, unless the environment's LOCKSTEP_CPU_LEVEL (read once) or a
/// ScopedCpuLevel lowers it. Throws Error when LOCKSTEP_CPU_LEVEL is no level, or one that this CPU lacks.
CpuLevel cpu_level();

/// The best level that this CPU has, whatever the environment says.
CpuLevel best_cpu_level() noexcept;

/// All levels up to best_cpu_level(), worst first: what a test goes through.
std::vector<CpuLevel> available_cpu_levels();

/// Sets the level of the whole process while it lives, for tests and benchmarks: make and destroy it while no other
/// thread computes. Throws Error when this CPU lacks the level.
class ScopedCpuLevel {
 public:
  explicit ScopedCpuLevel(CpuLevel level);
  ~ScopedCpuLevel();
  ScopedCpuLevel(const ScopedCpuLevel&) = delete;
  ScopedCpuLevel& operator=(const ScopedCpuLevel&) = delete;

 private:
  CpuLevel before_;
};

namespace detail {

/// What LOCKSTEP_CPU_LEVEL=text means on a CPU whose best level is `best`; null or empty text asks for the best.
CpuLevel requested_cpu_level(const char* text, CpuLevel best);

template <class Function>
Function* select_isa(Function* baseline, Function* avx2, Function* avx512) {
  const CpuLevel level = cpu_level();
  return level >= CpuLevel::avx512 ? avx512 : level == CpuLevel::avx2 ? avx2 : baseline;
}

}  // namespace detail
}  // namespace lockstep
