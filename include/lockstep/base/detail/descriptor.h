// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <string_view>
#include <utility>

namespace lockstep {

/// Owns a file descriptor, and closes it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void close() noexcept {
    if (fd_ >= 0) ::close(release());
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  Descriptor read;
  Descriptor write;
};

/// Both ends close on exec. Throws std::system_error.
Pipe make_pipe();
/// Throws std::system_error.
void set_nonblocking(const Descriptor& descriptor);

/// A socket that takes connections at this address, IPv4 or IPv6 (then those of IPv4 too). Empty, with errno, where
/// there can be none: EADDRINUSE where the port is taken.
Descriptor listen_at(const sockaddr* address, socklen_t size) noexcept;

/// The port that such a socket has, also where port 0 was asked for. Throws std::system_error.
int port_of(const Descriptor& listener);

/// Writes it all, in one write(2) where the kernel takes it. False, with errno, where it can't be written.
bool write_all(int fd, std::string_view bytes) noexcept;

/// Throws std::system_error for errno: "`what`: No such file or directory".
[[noreturn]] void throw_errno(const char* what);

}  // namespace lockstep
