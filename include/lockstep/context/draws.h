// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "lockstep/numerics/philox.h"

namespace lockstep {

/// Random numbers in the order in which they are asked for: draw number k is keyed by (key, k). Used by one thread.
class Draws {
 public:
  explicit Draws(RandomKey key) noexcept : key_(key) {}
  Draws(const Draws&) = delete;
  Draws& operator=(const Draws&) = delete;

  /// Starts again, at draw 0 of another key: once a step, with `RandomKey{seed}.fold(step).fold(replica)`.
  void begin(RandomKey key) noexcept;

  /// How many were taken since; where another process goes on with them, its number of them.
  uint64_t taken() const noexcept { return draws_; }
  void go_on_at(uint64_t taken) noexcept { draws_ = taken; }

  /// The key of the next draw, which is thereby taken.
  RandomKey next_key() noexcept { return key_.fold(draws_++); }
  /// A generator at the start of the next draw's numbers; valid until the next call.
  const at::Generator& next_generator(at::Device device);

  /// Those of the calling thread (of its innermost RandomScope), or null.
  static Draws* current() noexcept;

 private:
  RandomKey key_;
  uint64_t draws_ = 0;
  std::vector<at::Generator> generators_;  // one a device, made when first used
};

/// A key for what is about to be drawn: of this thread's draws, or else of the default CPU generator, which moves on.
RandomKey draw_key();

}  // namespace lockstep
