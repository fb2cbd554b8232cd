// SPDX-License-Identifier: Apache-2.0
// Ranks as real processes. This program starts no thread before it forks: a child must not inherit a lock that a
// thread of its parent held.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/collective_checks.h"
#include "comm/expect_failure.h"
#include "comm/gloo/gloo.h"
#include "comm/meeting/rendezvous.h"
#include "comm/transport/transport_backend.h"
#include "lockstep/comm/connect.h"
#include "support/processes.h"

namespace lockstep::comm {
namespace {

using lockstep::test::Processes;
using std::chrono::milliseconds;
using test::contribution;
using test::expect_failure;

#define SKIP_WITHOUT_GLOO() \
  if (!has_gloo()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)"

// A store in a process of its own, which outlives the ranks.
class Store {
 public:
  Store() {
    at::set_num_threads(1);
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    server_ = std::make_unique<Processes>(1, [&](int) {
      c10d::TCPStoreOptions options = client_options(0);
      options.isServer = true;
      const c10d::TCPStore store("127.0.0.1", options);
      const uint16_t port = store.getPort();
      if (write(ends[1], &port, sizeof port) == sizeof port) pause();
    });
    if (read(ends[0], &port_, sizeof port_) != sizeof port_) throw std::runtime_error("the store did not start");
    close(ends[0]);
    close(ends[1]);
  }

  Group group(int rank, int size, milliseconds timeout) const {
    const auto store = shared_store(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", client_options(port_)));
    return Group(make_transport_backend(make_gloo_transport(store, rank, size, "127.0.0.1", timeout), timeout));
  }

 private:
  static c10d::TCPStoreOptions client_options(uint16_t port) {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.waitWorkers = false;
    return options;
  }

  std::unique_ptr<Processes> server_;
  uint16_t port_ = 0;
};

TEST(Processes, EveryCollectiveWorksBetweenProcesses) {
  SKIP_WITHOUT_GLOO();
  const Store store;
  Processes processes(3, [&](int rank) {
    const Group group = store.group(rank, 3, milliseconds(30000));
    test::check_everything(group, 4096);
    group.finish();
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), 0);
}

int free_port() {
  const int end = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (bind(end, any, length) != 0 || getsockname(end, any, &length) != 0) throw std::runtime_error("no free port");
  close(end);
  return ntohs(address.sin_port);
}

TEST(Processes, OneJobHasSeveralGroups) {
  SKIP_WITHOUT_GLOO();
  const int port = free_port();
  Processes processes(2, [&](int rank) {
    Environment place;
    place.launcher = "env";
    place.rank = place.local_rank = rank;
    place.size = place.local_size = 2;
    place.store_host = "127.0.0.1";
    place.store_port = port;
    const Group first = connect(place, {.backend = "gloo"});
    const Group second = connect(place, {.backend = "gloo", .name = "second"});
    test::check_all_reduce(first, 100, at::kFloat);
    test::check_all_reduce(second, 100, at::kFloat);
    second.finish();
    first.finish();
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(processes.wait(rank), 0);
}

TEST(Processes, AKilledRankIsNamedByAllOthers) {
  SKIP_WITHOUT_GLOO();
  const Store store;
  Processes processes(4, [&](int rank) {
    const Group group = store.group(rank, 4, milliseconds(20000));
    auto tensor = contribution(rank, 1 << 20, at::kFloat);
    group.all_reduce(tensor).wait();
    if (rank == 2) raise(SIGKILL);
    expect_failure([&] { group.all_reduce(tensor).wait(); }, 2, 10);
    expect_failure([&] { group.barrier().wait(); }, 2, 5);  // broken: at once
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(processes.wait(rank), rank == 2 ? 128 + SIGKILL : 0) << rank;
}

TEST(Processes, AStoppedRankIsNamedWithinTheTimeout) {
  SKIP_WITHOUT_GLOO();
  const Store store;
  Processes processes(3, [&](int rank) {
    const Group group = store.group(rank, 3, milliseconds(20000));
    auto tensor = contribution(rank, 100000, at::kFloat);
    group.all_reduce(tensor).wait();
    if (rank == 1) raise(SIGSTOP);
    expect_failure([&] { group.all_reduce(tensor, ReduceOp::sum, {.timeout = milliseconds(3000)}).wait(); }, 1, 6);
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(2), 0);
}

}  // namespace
}  // namespace lockstep::comm
