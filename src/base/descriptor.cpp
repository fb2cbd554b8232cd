// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/descriptor.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <cerrno>
#include <system_error>

namespace lockstep {

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe2");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void set_nonblocking(const Descriptor& descriptor) {
  if (fcntl(descriptor.get(), F_SETFL, fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK) != 0) throw_errno("fcntl");
}

Descriptor listen_at(const sockaddr* address, socklen_t size) noexcept {
  Descriptor listener(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return {};
  const int on = 1, off = 0;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(listener.get(), address, size) == 0 && listen(listener.get(), SOMAXCONN) == 0) return listener;
  const int why = errno;
  listener.close();
  errno = why;
  return {};
}

int port_of(const Descriptor& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) throw_errno("getsockname");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

bool write_all(int fd, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());  // of at most 2 GiB, however many there are
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace lockstep
