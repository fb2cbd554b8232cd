// SPDX-License-Identifier: Apache-2.0
// The parts of one copy of a network, where each is a process: what they hand each other.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/forecast/virtual_link.h"
#include "parallel/forecast/virtual_time.h"

namespace lockstep::parallel {

/// What a replica's pass in one part needs of another: what the part before it hands on, the network's output, and the
/// gradients of what it has handed on itself.
enum class Handover : uint8_t { none, handed_on, output, gradients };

/// What crosses of one replica with a usual share.
struct CrossingCost {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

struct BorderCosts {
  CrossingCost forward{}, backward{};
};

/// Messages in virtual time, as process_pipeline.cpp sends them: each process has a way out of its own, and both sides
/// give a core's time for a message. What all parts have computed they agree on when a step ends.
class VirtualLine {
 public:
  using Deliver = std::function<void(int64_t member, Handover what)>;

  /// `borders`: behind each part; the last one's is the network's output. `agreement`: seconds of the exchange in which
  /// parts agree.
  VirtualLine(VirtualTime& time, const LinkCost& cost, std::vector<BorderCosts> borders,
              std::vector<VirtualCores*> cores, double agreement);

  int64_t parts() const { return static_cast<int64_t>(borders_.size()); }
  void on_delivery(int64_t part, Deliver deliver) { deliver_[part] = std::move(deliver); }
  /// All parts have come to the end of the step and have agreed.
  void on_agreed(int64_t part, std::function<void()> call) { agreed_[part] = std::move(call); }

  /// A replica of `share` times the usual size has gone through this part.
  void send_forward(int64_t part, int64_t member, double share);
  void send_backward(int64_t part, int64_t member, double share);
  void agree();

  /// By this part, in all.
  int64_t bytes_sent(int64_t part) const { return links_[part].bytes(); }

 private:
  void send(int64_t from, int64_t to, int64_t member, Handover what, const CrossingCost& cost, double share);

  VirtualTime& time_;
  const std::vector<BorderCosts> borders_;
  const std::vector<VirtualCores*> cores_;
  const double agreement_;
  std::vector<VirtualLink> links_;
  std::vector<Deliver> deliver_;
  std::vector<std::function<void()>> agreed_;
  int64_t arrived_ = 0;
};

}  // namespace lockstep::parallel
