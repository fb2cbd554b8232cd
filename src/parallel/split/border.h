// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "lockstep/context/stages.h"

namespace lockstep::parallel {

/// Lays a node of autograd behind the bundle's tensors, which passes their gradients on as they come. `on_back` runs
/// before, when the backward pass comes to it. Nothing is laid where no tensor has a gradient.
void lay_border(Bundle& bundle, std::function<void()> on_back);

/// Seconds that the calling thread has computed: waiting, and what else the machine does, is not in them.
double thread_seconds();

}  // namespace lockstep::parallel
