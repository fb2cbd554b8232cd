// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "comm/transport/wrapped.h"

namespace lockstep::comm {

/// A transport that counts the bytes it sends.
class CountingTransport : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;

  int64_t bytes_sent() const { return bytes_.load(std::memory_order_relaxed); }

  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    int64_t bytes = 0;
    for (const Message& message : sends) bytes += static_cast<int64_t>(message.tensor.nbytes());
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return WrappedTransport::start(sends, receives, channel);
  }

  bool ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) override {
    if (!WrappedTransport::ring_all_reduce(flat, op, deadline)) return false;
    // What a ring sends: it is the backend's own, and shows no messages.
    bytes_.fetch_add(2 * (size() - 1) * static_cast<int64_t>(flat.nbytes()) / size(), std::memory_order_relaxed);
    return true;
  }

 private:
  std::atomic<int64_t> bytes_{0};
};

}  // namespace lockstep::comm
