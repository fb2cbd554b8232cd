// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/context/detail/context.h"
#include "lockstep/context/draws.h"

namespace lockstep {

/// While it lives, libtorch's random operations on this thread draw from keyed generators instead of the default one
/// that all threads share: dropout of any kind, torch::rand, bernoulli_, multinomial, initialisers. Draw number k is
/// keyed by (key, k), so what a layer draws follows from the key and from what was drawn before it in this scope, and
/// not from other threads or the placement. A call that is given a generator of its own uses that one. Scopes nest.
///
/// A program that never uses a scope runs exactly as without this file. (The first scope calls install_overrides(),
/// which see.) In a backward pass on CUDA, which runs on a thread of autograd's, and in CUDA's fused attention and
/// recurrent layers, the default generator still serves.
class RandomScope : public Draws {
 public:
  explicit RandomScope(RandomKey key) : Draws(key), outer_(Context::current().draws) {
    install_overrides();
    Context::current().draws = this;
  }
  ~RandomScope() { Context::current().draws = outer_; }

 private:
  Draws* outer_;
};

}  // namespace lockstep
