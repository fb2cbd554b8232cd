// SPDX-License-Identifier: Apache-2.0
#include "launch/survival/pending_link.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kAttempt{1};  // so long may a connection take

}  // namespace

Descriptor PendingLink::advance() {
  if (!socket_) {
    begin();
    return {};
  }
  pollfd ready{socket_.get(), POLLOUT, 0};
  if (poll(&ready, 1, 0) == 1) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return std::exchange(socket_, {});
    fail(error);
  } else if (std::chrono::steady_clock::now() - begun_ > kAttempt) {
    socket_.close();
  }
  return {};
}

void PendingLink::begin() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found) != 0) return;
  std::vector<const addrinfo*> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) addresses.push_back(entry);
  const addrinfo& address = *addresses[attempt_++ % addresses.size()];
  socket_ = Descriptor(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  begun_ = std::chrono::steady_clock::now();
  if (socket_ && connect(socket_.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) fail(errno);
  freeaddrinfo(found);
}

void PendingLink::fail(int error) {
  refused_ = error == ECONNREFUSED;
  socket_.close();
}

}  // namespace lockstep::launch
