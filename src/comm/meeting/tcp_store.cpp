// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/detail/tcp_store.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <resolv.h>

#include <optional>
#include <tuple>
#include <utility>

namespace lockstep::comm {
namespace {

bool is_address(const std::string& host) {
  in6_addr room;
  return inet_pton(AF_INET, host.c_str(), &room) == 1 || inet_pton(AF_INET6, host.c_str(), &room) == 1;
}

// While it lives this thread asks each name server once, and waits for a second.
class Impatience {
 public:
  Impatience() {
    if ((_res.options & RES_INIT) == 0 && res_init() != 0) return;
    before_ = {std::exchange(_res.retrans, 1), std::exchange(_res.retry, 1)};
  }
  ~Impatience() {
    if (before_) std::tie(_res.retrans, _res.retry) = *before_;
  }
  Impatience(const Impatience&) = delete;
  Impatience& operator=(const Impatience&) = delete;

 private:
  std::optional<std::pair<int, int>> before_;
};

}  // namespace

c10::intrusive_ptr<c10d::TCPStore> make_tcp_store(const std::string& host, const c10d::TCPStoreOptions& options) {
  if (!is_address(host)) return c10::make_intrusive<c10d::TCPStore>(host, options);
  const Impatience impatience;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

}  // namespace lockstep::comm
