// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "comm/transport/transport.h"

namespace lockstep::comm {

/// A transport around another one, which does whatever a derived class does not.
class WrappedTransport : public Transport {
 public:
  explicit WrappedTransport(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  std::string name() const override { return transport_->name(); }
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  at::Device device() const override { return transport_->device(); }

  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    return transport_->start(sends, receives, channel);
  }
  bool ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) override {
    return transport_->ring_all_reduce(flat, op, deadline);
  }
  /// The inner one's: it is wrapped anew.
  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, int number) override {
    return transport_->subgroup(members, number);
  }
  int find_culprit(int suspect, std::chrono::milliseconds patience) noexcept override {
    return transport_->find_culprit(suspect, patience);
  }
  void close() noexcept override { transport_->close(); }
  void leave() noexcept override { transport_->leave(); }

 private:
  const std::shared_ptr<Transport> transport_;
};

}  // namespace lockstep::comm
