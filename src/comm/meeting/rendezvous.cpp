// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting/rendezvous.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "comm/transport/transport.h"
#include "lockstep/base/detail/atomic_file.h"
#include "lockstep/base/detail/descriptor.h"
#include "lockstep/base/detail/first_line.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/detail/tcp_store.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

// A socket that only this host reaches, where the store's host is written as such an address: c10d's own would listen
// on all addresses, and who connects there is not asked for a name. None where the port is taken: by this process's own
// store, which c10d then shares, or by another program, which c10d names.
Descriptor listen_on_loopback(const std::string& host, int port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &v4.sin_addr) != 1 ||
      ntohl(v4.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET)
    return {};
  return listen_at(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
}

c10::intrusive_ptr<c10d::TCPStore> make_store(const std::string& host, int port, bool serve,
                                              std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = serve;
  options.waitWorkers = false;
  options.multiTenant = true;  // a process that connects twice serves both groups
  options.timeout = timeout;
  if (Descriptor listener = serve ? listen_on_loopback(host, port) : Descriptor()) {
    options.port = static_cast<uint16_t>(port_of(listener));
    options.masterListenFd = listener.release();
  }
  return make_tcp_store(host, options);
}

fs::path port_file(const std::string& job) {
  std::string name;
  for (char c : job) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  const fs::path base = folder != nullptr && fs::is_directory(folder) ? fs::path(folder) : fs::temp_directory_path();
  return base / text("lockstep-", getuid(), "-", name, ".port");
}

// Rank 0 serves on a free port and tells the others by a file, which is whole as soon as it is there.
c10::intrusive_ptr<c10d::Store> meet_by_file(const Environment& place, std::chrono::milliseconds timeout) {
  require(!place.job.empty(), "connect", "the launcher ", place.launcher,
          " names neither a store nor a job, expected MASTER_ADDR and MASTER_PORT");
  const fs::path path = port_file(place.job);
  if (place.rank == 0) {
    auto store = make_store(place.store_host, 0, true, timeout);
    AtomicFile file(path, "connect", AtomicFile::Sync::no);
    file.write(text(store->getPort(), "\n"));
    file.commit();
    for (int r = 1; r < place.size; ++r) store->wait({text("met/", r)}, timeout);
    fs::remove(path);
    return store;
  }
  const auto deadline = Clock::now() + timeout;
  int port = 0;
  while (!(std::ifstream(path) >> port)) {
    if (Clock::now() > deadline)
      throw CommError(0, "connect", timeout.count() / 1000.0,
                      text("connect: rank 0 did not publish its port in ", path.string()));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  auto store = make_store(place.store_host, port, false, timeout);
  store->set(text("met/", place.rank), std::vector<uint8_t>{1});
  return store;
}

class SharedStore : public c10d::Store {
 public:
  SharedStore(c10::intrusive_ptr<c10d::Store> store, std::function<bool()> given_up)
      : Store(store->getTimeout()), store_(std::move(store)), given_up_(std::move(given_up)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<SharedStore>(store_, given_up_); }
  void set(const std::string& key, const std::vector<uint8_t>& value) override { store_->set(key, value); }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    return store_->compareSet(key, expected, desired);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key});
    return store_->get(key);
  }
  int64_t add(const std::string& key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    constexpr std::chrono::milliseconds kShort{2}, kLong{50};
    const auto start = Clock::now();
    for (auto ask = start + kLong; !store_->check(keys);) {
      const auto now = Clock::now();
      if (now > start + timeout)
        C10_THROW_ERROR(DistStoreError, text("no ", keys[0], " within ", timeout.count(), " ms"));
      if (given_up_ && now > ask) {
        if (given_up_()) C10_THROW_ERROR(DistStoreError, text("the others won't come to set ", keys[0]));
        ask = now + kLong;
      }
      // Who waits for long, beside a thousand others, asks less often.
      std::this_thread::sleep_for(std::clamp<Clock::duration>((now - start) / 16, kShort, kLong));
    }
  }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::function<bool()> given_up_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> shared_store(c10::intrusive_ptr<c10d::Store> store, std::function<bool()> given_up) {
  return c10::make_intrusive<SharedStore>(std::move(store), std::move(given_up));
}

c10::intrusive_ptr<c10d::Store> open_store(const Environment& place, std::chrono::milliseconds timeout) {
  const auto start = Clock::now();
  try {
    if (place.store_port == 0) return meet_by_file(place, timeout);
    return make_store(place.store_host, place.store_port, !place.store_is_served && place.rank == 0, timeout);
  } catch (const c10::Error& error) {
    throw CommError(0, "connect", std::chrono::duration<double>(Clock::now() - start).count(),
                    text("connect: no store at ", place.store_host, " port ", place.store_port, " for rank ",
                         place.rank, " (", first_line(error.what_without_backtrace()), ")"));
  }
}

std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  require(getaddrinfo(host.c_str(), "9", &hints, &found) == 0, "connect", "the store's host '", host,
          "' has no address, expected a host name or an IPv4 or IPv6 address");
  std::string address;
  for (const addrinfo* entry = found; entry != nullptr && address.empty(); entry = entry->ai_next) {
    // Connecting a datagram socket sends nothing; it only asks the kernel for the way.
    const int fd = socket(entry->ai_family, SOCK_DGRAM, 0);
    if (fd < 0) continue;
    sockaddr_storage mine{};
    socklen_t length = sizeof mine;
    char name[NI_MAXHOST];
    if (connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&mine), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&mine), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0)
      address = name;
    close(fd);
  }
  freeaddrinfo(found);
  require(!address.empty(), "connect", "no network interface leads to the store's host '", host, "'");
  return address;
}

}  // namespace lockstep::comm
