// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/pinned.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/numerics/device.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace lockstep {
namespace {

// MKL inside libtorch_cpu exports the function behind mkl_cbwr_set, not the documented name. It is looked up, as a
// libtorch for another CPU has no MKL. The numbers are those of mkl_types.h.
using CbwrFunction = int (*)(int);
constexpr int cbwr_all = -1;  // ask for everything
constexpr int cbwr_branch_off = 1;
constexpr int cbwr_auto = 2;
constexpr int cbwr_compatible = 3;
constexpr int cbwr_strict = 0x10000;

CbwrFunction mkl_function(const char* name) {
  return reinterpret_cast<CbwrFunction>(dlsym(RTLD_DEFAULT, name));
}

void pin_mkl() {
  const CbwrFunction set = mkl_function("mkl_serv_cbwr_set"), get = mkl_function("mkl_serv_cbwr_get");
  if (set == nullptr || get == nullptr || std::getenv("MKL_CBWR") != nullptr) return;
  if (get(cbwr_all) == cbwr_auto || set(cbwr_auto) == 0) return;
  log_warning(
      "pin_numerics: MKL was used before and cannot be pinned any more, so the bits of a matrix product depend "
      "on its operands' alignment; expected the call at the start of the program");
}

void pin_cuda() {
  if (!built_with_cuda()) return;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  const bool tf32 = tf32_is_allowed();
  context.setAllowTF32CuDNN(tf32);
  context.setAllowTF32CuBLAS(tf32);
  if (cuda_devices().empty()) return;
  // A network of the user's own may hold what adds up with atomics (scatter, embedding): torch has another way for most
  // of it, and warns of the rest. What is made without values need not be filled for that.
  if (!context.deterministicAlgorithms()) context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  context.setDeterministicFillUninitializedMemory(false);
}

#if defined(__x86_64__)
constexpr uint64_t flush_bits = 0x8040;     // results (FTZ) and operands (DAZ)
constexpr uint64_t float_default = 0x1F80;  // every exception masked, rounding to nearest
void set_float_control(uint64_t control) noexcept {
  _mm_setcsr(static_cast<unsigned>(control));
}
#elif defined(__aarch64__)
constexpr uint64_t flush_bits = 1 << 24;
constexpr uint64_t float_default = 0;
void set_float_control(uint64_t control) noexcept {
  asm volatile("msr fpcr, %0" : : "r"(control));
}
#else
constexpr uint64_t flush_bits = 0;
constexpr uint64_t float_default = 0;
void set_float_control(uint64_t) noexcept {}
#endif

uint64_t control_for(const NumericsOptions& options) {
  require(options.intra_op_threads >= 1, "ReplicaNumerics", "intra_op_threads is ", options.intra_op_threads,
          ", expected at least 1");
  require(!options.flush_denormals || flush_bits != 0, "ReplicaNumerics",
          "flush_denormals is set, expected it unset: this kind of CPU has no known switch");
  return float_default | (options.flush_denormals ? flush_bits : 0);
}

}  // namespace

uint64_t detail::float_control() noexcept {
#if defined(__x86_64__)
  return _mm_getcsr() & ~uint64_t{0x3F};  // without the flags of exceptions that have happened
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
#else
  return 0;
#endif
}

void pin_numerics() {
  [[maybe_unused]] static const bool pinned = (pin_mkl(), pin_cuda(), true);
}

bool tf32_is_allowed() {
  const char* const setting = std::getenv("LOCKSTEP_TF32");
  return setting != nullptr && *setting != '\0' && std::string_view(setting) != "0";
}

std::string mkl_mode() {
  const CbwrFunction get = mkl_function("mkl_serv_cbwr_get");
  if (get == nullptr) return "none";
  const int mode = get(cbwr_all), branch = mode & ~cbwr_strict;
  const std::string strict = mode & cbwr_strict ? ", strict" : "";
  if (branch <= cbwr_branch_off) return "off" + strict;
  if (branch == cbwr_auto) return "auto" + strict;
  if (branch == cbwr_compatible) return "compatible" + strict;
  return text("branch ", branch, strict);
}

ReplicaNumerics::ReplicaNumerics(const NumericsOptions& options)
    : float_control_before_(detail::float_control()), threads_before_(at::get_num_threads()) {
  const uint64_t control = control_for(options);
  pin_numerics();
  set_float_control(control);
  at::internal::lazy_init_num_threads();  // else this program's first loop takes the number that another thread left
  at::set_num_threads(options.intra_op_threads);
}

ReplicaNumerics::~ReplicaNumerics() {
  set_float_control(float_control_before_);
  at::set_num_threads(threads_before_);
}

IntraOpThreadsKept::IntraOpThreadsKept() : threads_(at::get_num_threads()) {}

IntraOpThreadsKept::~IntraOpThreadsKept() {
  at::set_num_threads(threads_);
}

}  // namespace lockstep
