// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch {
class Library;
}

// The operations of this layer are registered with torch's dispatcher as lockstep_sparse::NAME. Public functions check
// their arguments, then call through here; the dispatcher finds the kernel of the device, autograd and autocast.
namespace lockstep::sparse {

/// Finds lockstep_sparse::`name`. Lives beside the registrations, so that a static build links them in.
c10::OperatorHandle find_operation(const char* name);

template <class Signature>
c10::TypedOperatorHandle<Signature> operation(const char* name) {
  return find_operation(name).typed<Signature>();
}

namespace cuda {
/// Registers the kernels of CUDA, where this build has them.
void register_operations(torch::Library& library);
}  // namespace cuda

}  // namespace lockstep::sparse
