// SPDX-License-Identifier: Apache-2.0
#include "parallel/forecast/virtual_line.h"

#include <cmath>
#include <memory>
#include <utility>

namespace lockstep::parallel {
namespace {

// What a parcel's first message has (parcel.cpp).
constexpr int64_t kLabelBytes = 256 * 8;

}  // namespace

VirtualLine::VirtualLine(VirtualTime& time, const LinkCost& cost, std::vector<BorderCosts> borders,
                         std::vector<VirtualCores*> cores, double agreement)
    : time_(time),
      borders_(std::move(borders)),
      cores_(std::move(cores)),
      agreement_(agreement),
      links_(borders_.size(), VirtualLink(cost)),
      deliver_(borders_.size()),
      agreed_(borders_.size()) {}

void VirtualLine::send_forward(int64_t part, int64_t member, double share) {
  const CrossingCost& cost = borders_[part].forward;
  if (part + 1 < parts()) return send(part, part + 1, member, Handover::handed_on, cost, share);
  for (int64_t other = 0; other < part; ++other) send(part, other, member, Handover::output, cost, share);
}

void VirtualLine::send_backward(int64_t part, int64_t member, double share) {
  if (part > 0) send(part, part - 1, member, Handover::gradients, borders_[part - 1].backward, share);
}

// Delivered when it has arrived and both sides have done their part.
void VirtualLine::send(int64_t from, int64_t to, int64_t member, Handover what, const CrossingCost& cost,
                       double share) {
  const int64_t messages = 1 + cost.tensors;
  const int64_t bytes = kLabelBytes + std::llround(share * static_cast<double>(cost.bytes));
  const auto left = std::make_shared<int>(3);
  const auto end_one = [this, left, to, member, what] {
    if (--*left == 0) deliver_[to](member, what);
  };
  time_.at(links_[from].start(time_.now(), messages, bytes), end_one);
  const double half = links_[from].cpu_seconds(messages, bytes) / 2;
  for (const int64_t side : {from, to}) cores_[side]->run(half, CoreUse::memory, 1, end_one);
}

void VirtualLine::agree() {
  if (++arrived_ < parts()) return;
  arrived_ = 0;
  time_.at(time_.now() + agreement_, [this] {
    for (const auto& call : agreed_) call();
  });
}

}  // namespace lockstep::parallel
