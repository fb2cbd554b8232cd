// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/context.h"

namespace lockstep {
namespace {
thread_local Context context;
}

Context& Context::current() noexcept {
  return context;
}

}  // namespace lockstep
