// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/parallel/forecast.h"

namespace lockstep::parallel {

/// One rank's way out, in virtual time: messages leave one behind another, and are there a latency later.
class VirtualLink {
 public:
  explicit VirtualLink(const LinkCost& cost) : cost_(cost) {}

  /// When so many messages have arrived that are sent from this moment on.
  double start(double now, int64_t messages, int64_t bytes) {
    if (messages == 0) return now;
    free_ = std::max(now, free_) + static_cast<double>(bytes) / cost_.bytes_per_second +
            cost_.message * static_cast<double>(messages);
    bytes_ += bytes;
    messages_ += messages;
    return free_ + cost_.latency;
  }
  double cpu_seconds() const { return cpu_seconds(messages_, bytes_); }
  /// Of a core, for messages that are sent and as many that come.
  double cpu_seconds(int64_t messages, int64_t bytes) const {
    return cost_.cpu_byte * static_cast<double>(bytes) + cost_.cpu_message * static_cast<double>(messages);
  }
  int64_t bytes() const { return bytes_; }

 private:
  const LinkCost& cost_;
  double free_ = 0;
  int64_t bytes_ = 0, messages_ = 0;
};

}  // namespace lockstep::parallel
