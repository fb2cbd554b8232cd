// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/peers.h"

/// The least that replicas on threads need: a barrier and a place for everybody's tensor.
namespace lockstep::test {

class ThreadPeers : public Peers {
 public:
  struct Table {
    explicit Table(int64_t replicas) : barrier(replicas), tensors(replicas) {}
    std::barrier<> barrier;
    std::vector<at::Tensor> tensors;
  };

  ThreadPeers(Table& table, int64_t replica) : table_(table), replica_(replica) {}
  int64_t replica() const override { return replica_; }
  int64_t replicas() const override { return static_cast<int64_t>(table_.tensors.size()); }

  at::Tensor all_gather(const at::Tensor& mine) override {
    table_.tensors[replica_] = mine.clone();
    table_.barrier.arrive_and_wait();
    at::Tensor all = at::stack(table_.tensors);
    table_.barrier.arrive_and_wait();
    return all;
  }

 private:
  Table& table_;
  int64_t replica_;
};

/// Runs body(replica) on a thread for each replica, which sees its peers.
inline void run_on_threads(int64_t replicas, const std::function<void(int64_t)>& body) {
  ThreadPeers::Table table(replicas);
  std::vector<std::jthread> threads;
  for (int64_t r = 0; r < replicas; ++r)
    threads.emplace_back([&, r] {
      ThreadPeers peers(table, r);
      const ContextScope scope({.peers = &peers});
      body(r);
    });
}

}  // namespace lockstep::test
