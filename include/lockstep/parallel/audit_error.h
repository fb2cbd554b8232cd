// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep::parallel {

/// A gradient that was computed twice has two results (TeamOptions::audit): a device computes wrongly. what() names the
/// device and its host, the replica, the tensor and the step. All processes get the same one, before the update.
class AuditError : public std::runtime_error {
 public:
  AuditError(const std::string& message, int faulty) : std::runtime_error(message), faulty_(faulty) {}
  /// The rank of the process whose device two others outvoted; -1 where nobody can tell which device is wrong.
  int faulty() const { return faulty_; }

 private:
  int faulty_;
};

}  // namespace lockstep::parallel
