// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/staging.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

namespace lockstep::comm {
namespace {

/// Messages some of which are received into copies.
class StagedPending : public Pending {
 public:
  StagedPending(std::unique_ptr<Pending> pending, std::vector<std::pair<at::Tensor, at::Tensor>> received)
      : pending_(std::move(pending)), received_(std::move(received)) {}

  void wait(Clock::time_point deadline) override {
    pending_->wait(deadline);
    for (const auto& [tensor, copy] : received_) tensor.copy_(copy);
    received_.clear();
  }

 private:
  std::unique_ptr<Pending> pending_;
  std::vector<std::pair<at::Tensor, at::Tensor>> received_;
};

at::Tensor copy_on(at::Device device, const at::Tensor& tensor) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

std::unique_ptr<Pending> StagingTransport::start(std::span<const Message> sends, std::span<const Message> receives,
                                                 uint32_t channel) {
  const auto reached = [this](const Message& message) { return reaches(message.tensor); };
  if (std::ranges::all_of(sends, reached) && std::ranges::all_of(receives, reached))
    return WrappedTransport::start(sends, receives, channel);
  std::vector<Message> out, in;
  std::vector<std::pair<at::Tensor, at::Tensor>> received;
  for (const Message& message : sends)
    out.push_back(reached(message) ? message : Message{message.peer, copy_on(device(), message.tensor)});
  for (const Message& message : receives) {
    in.push_back(message);
    if (reached(message)) continue;
    in.back().tensor = at::empty_like(message.tensor, message.tensor.options().device(device()));
    received.emplace_back(message.tensor, in.back().tensor);
  }
  return std::make_unique<StagedPending>(WrappedTransport::start(out, in, channel), std::move(received));
}

bool StagingTransport::ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) {
  if (reaches(flat)) return WrappedTransport::ring_all_reduce(flat, op, deadline);
  const at::Tensor copy = copy_on(device(), flat);
  if (!WrappedTransport::ring_all_reduce(copy, op, deadline)) return false;
  flat.copy_(copy);
  return true;
}

}  // namespace lockstep::comm
