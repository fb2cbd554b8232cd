// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/detail/fd.h"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

namespace lockstep::cli {

void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe2");
  return {Fd(ends[0]), Fd(ends[1])};
}

void set_nonblocking(const Fd& fd) {
  if (fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0) throw_errno("fcntl");
}

}  // namespace lockstep::cli
