// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::launch {

/// A connection to a launcher's door that is being made: it may be started later, and its name may have several
/// addresses, of which one after the other is tried. Nothing here blocks, but for the look-up of a name.
class PendingLink {
 public:
  PendingLink(std::string host, int port) : host_(std::move(host)), port_(port) {}

  const std::string& host() const { return host_; }
  /// The connection, once there is one. To be called several times a second.
  Descriptor advance();
  /// The host has answered that nobody listens there.
  bool is_refused() const { return refused_; }

 private:
  void begin();
  void fail(int error);

  std::string host_;
  int port_;
  Descriptor socket_;
  std::chrono::steady_clock::time_point begun_{};
  size_t attempt_ = 0;
  bool refused_ = false;
};

}  // namespace lockstep::launch
