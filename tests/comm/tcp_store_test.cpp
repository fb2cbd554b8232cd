// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/detail/tcp_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::comm {
namespace {

// This thread's only name server, which never answers.
class SilentNameServer {
 public:
  SilentNameServer() : before_(_res) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&here), sizeof here), 0);
    here.sin_port = htons(static_cast<uint16_t>(port_of(socket_)));
    _res.nsaddr_list[0] = here;
    _res.nscount = 1;
    _res.retry = 4;
  }
  ~SilentNameServer() { _res = before_; }
  SilentNameServer(const SilentNameServer&) = delete;
  SilentNameServer& operator=(const SilentNameServer&) = delete;

  int questions() const {
    char question[512];
    int count = 0;
    while (recv(socket_.get(), question, sizeof question, MSG_DONTWAIT) > 0) ++count;
    return count;
  }

 private:
  const struct __res_state before_;
  const Descriptor socket_{socket(AF_INET, SOCK_DGRAM, 0)};
};

TEST(TcpStore, AsksForTheNameOfAnAddressOnceAConnection) {
  ASSERT_EQ(res_init(), 0);
  const SilentNameServer server;
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto served = make_tcp_store("127.0.0.1", options);
  options.port = served->getPort();
  options.isServer = false;
  const auto store = make_tcp_store("127.0.0.1", options);
  store->set("key", std::vector<uint8_t>{1});
  EXPECT_TRUE(served->check({"key"}));
  EXPECT_LE(server.questions(), 2);
  EXPECT_EQ(_res.retry, 4);  // who asks later is as patient as before
}

}  // namespace
}  // namespace lockstep::comm
