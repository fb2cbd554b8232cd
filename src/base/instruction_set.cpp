// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/instruction_set.h"

#include <array>
#include <atomic>
#include <cstdlib>

#include "lockstep/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep {
namespace {

constexpr std::array all_cpu_levels{CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::avx512_bf16};

CpuLevel detect() noexcept {
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks whether the kernel saves the wide registers. Clang's does not know F16C.
  __builtin_cpu_init();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuLevel::baseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return CpuLevel::avx2;
  return __builtin_cpu_supports("avx512bf16") ? CpuLevel::avx512_bf16 : CpuLevel::avx512;
#else
  return CpuLevel::baseline;
#endif
}

std::atomic<CpuLevel>& current_cpu_level() {
  static std::atomic<CpuLevel> level{detail::requested_cpu_level(std::getenv("LOCKSTEP_CPU_LEVEL"), best_cpu_level())};
  return level;
}

}  // namespace

const char* to_string(CpuLevel level) noexcept {
  switch (level) {
    case CpuLevel::baseline:
      return "baseline";
    case CpuLevel::avx2:
      return "avx2";
    case CpuLevel::avx512:
      return "avx512";
    case CpuLevel::avx512_bf16:
      return "avx512_bf16";
  }
  LOCKSTEP_ASSERT(!"a CpuLevel outside its enumeration");
}

CpuLevel parse_cpu_level(const char* operation, std::string_view text) {
  for (CpuLevel level : all_cpu_levels)
    if (text == to_string(level)) return level;
  fail(operation, "got '", text, "', expected baseline, avx2, avx512 or avx512_bf16");
}

CpuLevel best_cpu_level() noexcept {
  static const CpuLevel best = detect();
  return best;
}

CpuLevel cpu_level() {
  return current_cpu_level().load(std::memory_order_relaxed);
}

std::vector<CpuLevel> available_cpu_levels() {
  std::vector<CpuLevel> levels;
  for (CpuLevel level : all_cpu_levels)
    if (level <= best_cpu_level()) levels.push_back(level);
  return levels;
}

ScopedCpuLevel::ScopedCpuLevel(CpuLevel level) : before_(cpu_level()) {
  require(level <= best_cpu_level(), "ScopedCpuLevel", "level is ", to_string(level), ", expected at most ",
          to_string(best_cpu_level()), ", the best of this CPU");
  current_cpu_level().store(level, std::memory_order_relaxed);
}

ScopedCpuLevel::~ScopedCpuLevel() {
  current_cpu_level().store(before_, std::memory_order_relaxed);
}

CpuLevel detail::requested_cpu_level(const char* text, CpuLevel best) {
  if (text == nullptr || *text == '\0') return best;
  const CpuLevel level = parse_cpu_level("LOCKSTEP_CPU_LEVEL", text);
  require(level <= best, "LOCKSTEP_CPU_LEVEL", "got ", text, ", expected at most ", to_string(best),
          ", the best of this CPU");
  return level;
}

}  // namespace lockstep
