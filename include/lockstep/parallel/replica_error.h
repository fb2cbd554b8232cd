// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>

namespace lockstep::parallel {

/// An exception left a replica's code. what() is "replica 3: " and the cause's own message.
class ReplicaError : public std::runtime_error {
 public:
  ReplicaError(int64_t replica, const std::string& message, std::exception_ptr cause);
  int64_t replica() const { return replica_; }
  /// As it was thrown: std::rethrow_exception gives it back.
  std::exception_ptr cause() const { return cause_; }

 private:
  int64_t replica_;
  std::exception_ptr cause_;
};

/// What to throw for a replica for which the system gives no thread.
std::exception_ptr no_thread(const std::system_error& error);

/// Wraps what a replica threw.
[[noreturn]] void rethrow_of_replica(int64_t replica, const std::exception_ptr& cause);

}  // namespace lockstep::parallel
