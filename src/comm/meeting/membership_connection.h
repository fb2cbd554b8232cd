// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/membership.h"

namespace lockstep::comm {

struct Membership::Connection {
  Environment place;
  ConnectOptions options;
  c10::intrusive_ptr<c10d::Store> store;  // of this host's launcher
  /// Makes a generation's group by the store where its members have met.
  std::function<Group(c10::intrusive_ptr<c10d::Store>, const Environment& place, const ConnectOptions& options)>
      connect;
};

}  // namespace lockstep::comm
