// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "comm/transport/transport.h"

namespace lockstep::comm {

/// A transport that counts the bytes it sends.
class CountingTransport : public Transport {
 public:
  explicit CountingTransport(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int64_t bytes_sent() const { return bytes_.load(std::memory_order_relaxed); }

  std::string name() const override { return transport_->name(); }
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  at::Device device() const override { return transport_->device(); }

  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    int64_t bytes = 0;
    for (const Message& message : sends) bytes += static_cast<int64_t>(message.tensor.nbytes());
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return transport_->start(sends, receives, channel);
  }

  bool ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) override {
    if (!transport_->ring_all_reduce(flat, op, deadline)) return false;
    // What a ring sends: it is the backend's own, and shows no messages.
    bytes_.fetch_add(2 * (size() - 1) * static_cast<int64_t>(flat.nbytes()) / size(), std::memory_order_relaxed);
    return true;
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, int number) override {
    return transport_->subgroup(members, number);
  }
  int find_culprit(int suspect, std::chrono::milliseconds patience) noexcept override {
    return transport_->find_culprit(suspect, patience);
  }
  void close() noexcept override { transport_->close(); }

 private:
  std::shared_ptr<Transport> transport_;
  std::atomic<int64_t> bytes_{0};
};

}  // namespace lockstep::comm
