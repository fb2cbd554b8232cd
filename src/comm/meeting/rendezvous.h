// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/connect.h"

namespace lockstep::comm {

/// The store through which the processes of a job find each other: the launcher's, or one that rank 0 serves. Where the
/// environment names no port (mpirun on one host), rank 0 takes a free one and publishes it in a file that only this
/// job and user know.
c10::intrusive_ptr<c10d::Store> open_store(const Environment& environment, std::chrono::milliseconds timeout);

/// A store whose connection all threads can share, and its clones do: who waits for a key asks for it again and again,
/// where torch's own store would keep the others from asking meanwhile. Each connection that torch makes costs a
/// question to the name service, which may take seconds to answer. Waits end with an error once `given_up`, which is
/// asked now and then, says true.
c10::intrusive_ptr<c10d::Store> shared_store(c10::intrusive_ptr<c10d::Store> store,
                                             std::function<bool()> given_up = {});

/// The address of this host's interface that leads to `host`: what the other ranks reach us by.
std::string address_towards(const std::string& host);

}  // namespace lockstep::comm
