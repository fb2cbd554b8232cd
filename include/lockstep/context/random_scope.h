// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "lockstep/numerics/philox.h"

namespace lockstep {

/// While it lives, libtorch's random operations on this thread draw from keyed generators instead of the default one
/// that all threads share: dropout of any kind, torch::rand, bernoulli_, multinomial, initialisers. Draw number k is
/// keyed by (key, k), so what a layer draws follows from the key and from what was drawn before it in this scope, and
/// not from other threads or the placement. A call that is given a generator of its own uses that one. Scopes nest.
///
/// A program that never uses a scope runs exactly as without this file. In a backward pass on CUDA, which runs on a
/// thread of autograd's, and in CUDA's fused attention and recurrent layers, the default generator still serves.
class RandomScope {
 public:
  explicit RandomScope(RandomKey key) noexcept;
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;
  ~RandomScope();

  /// Starts again, at draw 0 of another key: once a step, with `RandomKey{seed}.fold(step).fold(replica)`.
  void begin(RandomKey key) noexcept;

  /// The key of the next draw, which is thereby taken.
  RandomKey next_key() noexcept { return key_.fold(draws_++); }
  /// A generator at the start of the next draw's numbers; valid until the next call.
  const at::Generator& next_generator(at::Device device);

  /// The innermost of this thread, or null.
  static RandomScope* current() noexcept;

 private:
  RandomKey key_;
  uint64_t draws_ = 0;
  std::vector<at::Generator> generators_;  // one a device, made when first used
  RandomScope* outer_;
};

/// A key for what is about to be drawn: of this thread's scope, or else of the default CPU generator, which moves on.
RandomKey draw_key();

}  // namespace lockstep
