// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::launch {

/// A connection between the launchers of two hosts, which say lines to each other. A host that vanishes closes no
/// connection: so each shows a sign of life several times a second. Nothing here blocks.
class HostLink {
 public:
  /// Throws std::system_error.
  explicit HostLink(Descriptor socket);

  void say(std::string_view line);
  /// The lines that have come since the last call. To be called several times a second.
  std::vector<std::string> hear();
  /// Closed at the other end, or silent for two seconds.
  bool is_lost() const;

 private:
  using Clock = std::chrono::steady_clock;
  void flush();

  Descriptor socket_;
  std::string out_, in_;
  bool closed_ = false;
  Clock::time_point said_{}, heard_ = Clock::now();
};

}  // namespace lockstep::launch
