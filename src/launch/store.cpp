// SPDX-License-Identifier: Apache-2.0
#include "launch/store.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/base/detail/descriptor.h"
#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

// A socket of our own makes: a store that only this host can reach, and an error of our own when the port is taken.
Descriptor listen_on(int family, const sockaddr* address, socklen_t size, int port) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  const int on = 1;
  const int off = 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(socket.get(), address, size) == 0 && listen(socket.get(), SOMAXCONN) == 0) return socket;
  require(errno != EADDRINUSE, "run", "port ", port, " is taken on this host, expected a free one (--port)");
  require(errno != EACCES, "run", "port ", port, " is not allowed here, expected one from 1024 (--port)");
  return {};
}

Descriptor listen_on(int port, bool any_host) {
  if (any_host) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_any;
    v6.sin6_port = htons(port);
    if (Descriptor socket = listen_on(AF_INET6, reinterpret_cast<const sockaddr*>(&v6), sizeof v6, port)) return socket;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(any_host ? INADDR_ANY : INADDR_LOOPBACK);
  v4.sin_port = htons(port);
  Descriptor socket = listen_on(AF_INET, reinterpret_cast<const sockaddr*>(&v4), sizeof v4, port);
  if (!socket) throw_errno("listen");
  return socket;
}

int port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) throw_errno("getsockname");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

struct ServedStore::Server {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

ServedStore::ServedStore(int port, bool any_host) {
  Descriptor socket = listen_on(port, any_host);
  port_ = port_of(socket);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port_);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = socket.release();
  server_ = std::make_unique<Server>(Server{c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options)});
}

ServedStore::~ServedStore() = default;

}  // namespace lockstep::launch
