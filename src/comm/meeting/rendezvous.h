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

/// A store whose waits, those of its copies too, end with an error once `given_up` says true: it is asked now and then.
c10::intrusive_ptr<c10d::Store> store_to_give_up(c10::intrusive_ptr<c10d::Store> store, std::function<bool()> given_up);

/// The address of this host's interface that leads to `host`: what the other ranks reach us by.
std::string address_towards(const std::string& host);

}  // namespace lockstep::comm
