// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/numerics/device.h"

namespace lockstep {

/// "0.1.0"
const char* version() noexcept;

/// What the contract of equal bits is stated for: a recipe gives the same bits wherever the fingerprint is the same.
/// Between fingerprints it gives the same mathematics, rounded differently.
///
/// Its items are pairs of text, in a fixed order: `lockstep`, `torch`, `mkl`, `onednn`, `device` (`cpu` or `sm_90`),
/// then for a CPU `isa` (of our kernels), `torch_isa`, `mkl_mode` (see numerics.h) and `cpu_vendor` (by which MKL
/// chooses its kernels), and for CUDA `gpu`, `cuda`, `cudnn` and `tf32`.
class Fingerprint {
 public:
  using Items = std::vector<std::pair<std::string, std::string>>;

  /// Of this process, were it to compute on this device. Throws Error for a CUDA device that is not there.
  static Fingerprint of(const Device& device);

  /// Of a saved list of items, from a checkpoint or a peer.
  explicit Fingerprint(Items items) : items_(std::move(items)) {}

  const Items& items() const { return items_; }

  /// One line: "lockstep 0.1.0, torch 2.11.0, ..."
  std::string to_string() const;

  bool operator==(const Fingerprint&) const = default;

  /// What differs, for a person: "torch is 2.11.0 here and 2.12.0 there; isa is avx2 here and missing there". Empty
  /// when nothing does.
  std::string difference(const Fingerprint& there) const;

 private:
  Items items_;
};

}  // namespace lockstep
