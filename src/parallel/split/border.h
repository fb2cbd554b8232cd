// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/context/stages.h"

namespace lockstep::parallel {

/// Lays a node of autograd behind the bundle's tensors, which passes their gradients on as they come. `on_back` runs
/// before, when the backward pass comes to it. Nothing is laid where no tensor has a gradient.
void lay_border(Bundle& bundle, std::function<void()> on_back);

/// What crosses where a bundle goes to another process, each tensor once, and its gradients come back.
struct CrossingBytes {
  int64_t handed_bytes = 0, handed_tensors = 0;
  int64_t returned_bytes = 0, returned_tensors = 0;
};
CrossingBytes crossing_of(const Bundle& bundle);

/// Seconds that the calling thread has computed: waiting, and what else the machine does, is not in them.
double thread_seconds();

}  // namespace lockstep::parallel
