// SPDX-License-Identifier: Apache-2.0
#include "launch/terminal_input.h"

#include <unistd.h>

#include <cerrno>

namespace lockstep::launch {

TerminalInput::TerminalInput() : pipe_(make_pipe()) {
  set_nonblocking(pipe_.write);
}

pollfd TerminalInput::wanted() const {
  if (!pipe_.write) return {-1, 0, 0};
  if (!typed_.empty()) return {pipe_.write.get(), POLLOUT, 0};
  return {tcgetpgrp(STDIN_FILENO) == getpgrp() ? STDIN_FILENO : -1, POLLIN, 0};
}

void TerminalInput::advance() {
  if (typed_.empty()) {
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count > 0) typed_.assign(bytes, count);
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) pipe_.write.close();
    return;
  }
  const ssize_t count = write(pipe_.write.get(), typed_.data(), typed_.size());
  if (count > 0) typed_.erase(0, count);
  if (count < 0 && errno == EPIPE) pipe_.write.close();  // rank 0 has closed its input
}

}  // namespace lockstep::launch
