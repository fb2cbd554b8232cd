// SPDX-License-Identifier: Apache-2.0
#include "support/program.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>

namespace lockstep::bench {

int run_program(int argc, char** argv, int (*run)(int, char**)) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool known = bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(listener);
  if (!known) throw std::runtime_error("bench: no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

bool has_fashion_mnist(const std::string& folder) {
  if (std::filesystem::exists(folder + "/train-images-idx3-ubyte.gz")) return true;
  std::printf("no Fashion-MNIST in %s (Debian: dataset-fashion-mnist): nothing was measured\n", folder.c_str());
  return false;
}

}  // namespace lockstep::bench
