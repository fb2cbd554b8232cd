// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting/shut_connections.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <set>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::comm {
namespace {

std::optional<std::string> numeric(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return std::nullopt;
  std::string text = host;
  if (text.starts_with("::ffff:") && text.find('.') != std::string::npos) text.erase(0, 7);
  return text + " " + port;
}

}  // namespace

void shut_connections_to(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  std::set<std::string> wanted;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next)
    if (const auto text = numeric(entry->ai_addr, entry->ai_addrlen)) wanted.insert(*text);
  freeaddrinfo(found);
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc/self/fd"), closedir);
  if (!all) return;
  while (const dirent* entry = readdir(all.get())) {
    // A copy of the number stays this socket's, also where another thread closes it now and takes the number anew.
    const Descriptor copy(fcntl(static_cast<int>(std::strtol(entry->d_name, nullptr, 10)), F_DUPFD_CLOEXEC, 3));
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (!copy || getpeername(copy.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) continue;
    const auto text = numeric(reinterpret_cast<const sockaddr*>(&peer), size);
    if (text && wanted.contains(*text)) shutdown(copy.get(), SHUT_RDWR);
  }
}

}  // namespace lockstep::comm
