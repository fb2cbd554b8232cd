// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace lockstep::detail {

void broken_invariant(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "lockstep: broken invariant '%s' at %s:%d (this is a bug in lockstep, please report it)\n",
               condition, file, line);
  std::abort();
}

}  // namespace lockstep::detail
