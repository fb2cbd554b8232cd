// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <string_view>
#include <utility>

namespace lockstep::run {

/// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// Writes it all, in one write(2) where the kernel takes it; false, with errno, when it can't.
bool write_all(int fd, std::string_view bytes);

}  // namespace lockstep::run
