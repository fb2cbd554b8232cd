// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/meeting/store_text.h"
#include "lockstep/comm/detail/members.h"
#include "lockstep/comm/membership.h"

namespace lockstep::comm {

/// The key under which the work is said to be done.
inline constexpr const char* kDoneKey = "lockstep/done";

struct Membership::Connection {
  Environment place;
  ConnectOptions options;
  c10::intrusive_ptr<c10d::Store> store;
  /// Makes a generation's group.
  std::function<Group(const Environment& place, const ConnectOptions& options)> connect;

  members::Generation newest() const { return members::parse(text_at(*store, members::key)); }
};

}  // namespace lockstep::comm
