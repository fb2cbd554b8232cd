// SPDX-License-Identifier: Apache-2.0
#include "launch/store.h"

#include <netinet/in.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/tcp_store.h"

namespace lockstep::launch {

// A socket of our own makes: a store that only this host can reach, and an error of our own when the port is taken.
Descriptor listen_on(int port, bool any_host) {
  const auto listen = [port](const auto& address) {
    Descriptor listener = listen_at(reinterpret_cast<const sockaddr*>(&address), sizeof address);
    require(listener || errno != EADDRINUSE, "run", "port ", port,
            " is taken on this host, expected a free one (--port)");
    require(listener || errno != EACCES, "run", "port ", port, " is not allowed here, expected one from 1024 (--port)");
    return listener;
  };
  if (any_host) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_any;
    v6.sin6_port = htons(port);
    if (Descriptor listener = listen(v6)) return listener;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(any_host ? INADDR_ANY : INADDR_LOOPBACK);
  v4.sin_port = htons(port);
  Descriptor listener = listen(v4);
  if (!listener) throw_errno("listen");
  return listener;
}

struct ServedStore::Server {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

ServedStore::ServedStore(int port, bool any_host) {
  Descriptor listener = listen_on(port, any_host);
  port_ = port_of(listener);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port_);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener.release();
  server_ = std::make_unique<Server>(Server{comm::make_tcp_store("127.0.0.1", options)});
}

ServedStore::~ServedStore() = default;

void ServedStore::set(const std::string& key, const std::string& value) {
  server_->store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

std::string ServedStore::get(const std::string& key) {
  const auto value = server_->store->get(key);
  return {value.begin(), value.end()};
}

bool ServedStore::has(const std::string& key) {
  return server_->store->check({key});
}

}  // namespace lockstep::launch
