// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/peers.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

class Numbered : public Peers {
 public:
  explicit Numbered(int64_t replica) : replica_(replica) {}
  int64_t replica() const override { return replica_; }
  int64_t replicas() const override { return 2; }
  at::Tensor all_gather(const at::Tensor& mine) override { return mine; }

 private:
  int64_t replica_;
};

TEST(Peers, AreOfOneThreadAndNest) {
  Numbered outer(0), inner(1);
  EXPECT_EQ(current_peers(), nullptr);
  {
    const PeersScope first(&outer);
    EXPECT_EQ(current_peers()->replica(), 0);
    std::thread([] { EXPECT_EQ(current_peers(), nullptr); }).join();
    {
      const PeersScope second(&inner);
      EXPECT_EQ(current_peers()->replica(), 1);
    }
    EXPECT_EQ(current_peers()->replica(), 0);
  }
  EXPECT_EQ(current_peers(), nullptr);
}

}  // namespace
}  // namespace lockstep
