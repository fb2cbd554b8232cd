// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

/// Settings of the process and of its threads that change the bits of a result although the recipe does not name
/// them. A program pins the first, a thread that computes a replica enters the second.
namespace lockstep {

/// Pins what is set once a process: MKL's reproducibility mode, without which a product of matrices depends on where in
/// memory they start (docs/decisions/007 has figures), and on CUDA cuDNN's choice of algorithms, cuBLAS's workspace and
/// TF32. MKL listens only before its first use: call this when the program starts. Called too late it warns once, and
/// results depend on alignment to 64 bytes as MKL documents. The user's MKL_CBWR and CUBLAS_WORKSPACE_CONFIG are left
/// as they are. Where there is a GPU torch is asked for deterministic algorithms, of which it warns where it has none.
/// May be called again, by any thread.
void pin_numerics();

/// Whether convolutions and products of float32 on a GPU may round their operands to TF32, which pin_numerics() sets
/// for both: LOCKSTEP_TF32=1 in the environment. Part of the fingerprint.
bool tf32_is_allowed();

/// MKL's mode as it is now: "auto" when pinned, "off" when not, "none" without MKL, ...: part of the fingerprint.
std::string mkl_mode();

struct NumericsOptions {
  /// The number of threads inside an operation changes the bits of convolution and matmul gradients.
  int intra_op_threads = 1;
  /// Whether numbers below 2^-126 count as zero; off is what IEEE 754 says and PyTorch does.
  bool flush_denormals = false;
};

/// A thread computes a replica while this lives: rounding to nearest, the options' denormals, the options' number of
/// threads, whatever the thread had before. Puts it back when destroyed, on the same thread.
///
/// libtorch also takes the number of threads of the last such call as that of threads that it has not met yet: see
/// IntraOpThreadsKept. Throws Error when intra_op_threads < 1.
class ReplicaNumerics {
 public:
  explicit ReplicaNumerics(const NumericsOptions& options = {});
  ~ReplicaNumerics();
  ReplicaNumerics(const ReplicaNumerics&) = delete;
  ReplicaNumerics& operator=(const ReplicaNumerics&) = delete;

 private:
  uint64_t float_control_before_;
  int threads_before_;
};

/// Lives around threads that enter ReplicaNumerics, and gives threads to come the number of intra-op threads that the
/// caller has.
class IntraOpThreadsKept {
 public:
  IntraOpThreadsKept();
  ~IntraOpThreadsKept();
  IntraOpThreadsKept(const IntraOpThreadsKept&) = delete;
  IntraOpThreadsKept& operator=(const IntraOpThreadsKept&) = delete;

 private:
  int threads_;
};

namespace detail {
/// The CPU's floating-point control word of this thread: MXCSR on x86-64, FPCR on AArch64, 0 elsewhere.
uint64_t float_control() noexcept;
}  // namespace detail

}  // namespace lockstep
