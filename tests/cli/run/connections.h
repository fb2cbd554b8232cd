// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "lockstep/base/detail/descriptor.h"
#include "lockstep/base/detail/file.h"

namespace lockstep::cli {

/// Ends the connections of a rank with other ranks, as a network may: the processes stay, and so does the rank's
/// connection with its launcher's store. How many there were; 0 where the kernel lets nobody at other processes'.
inline int lose_connections(pid_t rank) {
  namespace fs = std::filesystem;
  const std::string environment = read_file(fs::path("/proc") / std::to_string(rank) / "environ");
  const std::string name = "MASTER_PORT=";
  const long store = std::strtol(environment.c_str() + environment.find(name) + name.size(), nullptr, 10);
  const Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, rank, 0)));
  int lost = 0;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(fs::path("/proc") / std::to_string(rank) / "fd", gone)) {
    const int number = std::stoi(entry.path().filename());
    const Descriptor copy(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), number, 0)));
    sockaddr_in6 peer{};  // the port of an IPv4 address lies in the same place
    socklen_t size = sizeof peer;
    if (!copy || getpeername(copy.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    const bool is_tcp = peer.sin6_family == AF_INET || peer.sin6_family == AF_INET6;
    if (is_tcp && ntohs(peer.sin6_port) != store && shutdown(copy.get(), SHUT_RDWR) == 0) ++lost;
  }
  return lost;
}

}  // namespace lockstep::cli
