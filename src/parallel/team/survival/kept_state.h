// SPDX-License-Identifier: Apache-2.0
// What the replicas of a process keep, so that others can go on from there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "lockstep/comm/membership.h"

namespace lockstep::parallel {

/// All that a loop of a user's own depends on after some step, by "network/0/NAME", "optimizer/0/NAME" and the like. In
/// "differs/..." and "own/..." a row is a replica's.
struct KeptState {
  int64_t steps = 0;
  std::map<std::string, at::Tensor> tensors;
};

/// What Replica::keep() works with in one generation of processes.
class Keeping {
 public:
  Keeping(comm::Membership& membership, std::optional<KeptState>& newest, int64_t every)
      : newest(newest), every(every), goes_on(newest.has_value()), membership_(membership) {}

  std::optional<KeptState>& newest;
  const int64_t every;
  const bool goes_on;  // from a copy, which the first keep() puts back
  bool has_changed() { return membership_.has_changed(); }

 private:
  comm::Membership& membership_;
};

/// Leaves the body of a team on all replicas after the same step: another process is ready to take part.
struct Regrouping {};

}  // namespace lockstep::parallel
