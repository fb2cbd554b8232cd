// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::launch {

/// A connection between the launchers of two hosts, which say lines to each other. A host that vanishes closes no
/// connection: so each shows a sign of life several times while one would be `silent`. Nothing here blocks.
class HostLink {
 public:
  /// Throws std::system_error.
  HostLink(Descriptor socket, std::chrono::milliseconds silent);

  void say(std::string_view line);
  /// The lines that have come since the last call. To be called several times a second.
  std::vector<std::string> hear();
  /// The other launcher has ended: its kernel says so.
  bool is_closed() const { return state_ == State::closed; }
  /// Closed, or nothing has come for too long.
  bool is_lost() const;
  /// The other host's address, as this one sees it.
  std::string peer() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { open, closed, broken };
  void flush();

  Descriptor socket_;
  std::chrono::milliseconds silent_;
  std::string out_, in_;
  State state_ = State::open;
  Clock::time_point said_{}, heard_ = Clock::now();
};

}  // namespace lockstep::launch
