// SPDX-License-Identifier: Apache-2.0
// The error of a replica, with its number.
#include "lockstep/parallel/replica_error.h"

#include "lockstep/base/error.h"

namespace lockstep::parallel {

ReplicaError::ReplicaError(int64_t replica, const std::string& message, std::exception_ptr cause)
    : std::runtime_error(text("replica ", replica, ": ", message)), replica_(replica), cause_(std::move(cause)) {}

std::exception_ptr no_thread(const std::system_error& error) {
  return std::make_exception_ptr(
      Error(text("no thread could be started for it (", error.what(),
                 "), expected one: run fewer replicas, or raise the limits on processes and memory (ulimit -u, -v)")));
}

void rethrow_of_replica(int64_t replica, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    throw ReplicaError(replica, error.what(), cause);
  } catch (...) {
    throw ReplicaError(replica, "an exception of an unknown type", cause);
  }
}

}  // namespace lockstep::parallel
