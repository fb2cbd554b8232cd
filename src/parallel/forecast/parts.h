// SPDX-License-Identifier: Apache-2.0
// A network's measured stages as the parts and buckets that a placement makes of them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/parallel/forecast.h"
#include "parallel/forecast/virtual_line.h"

namespace lockstep::parallel {

/// Seconds of a pass through a stage that so many sharers divide.
double forward_with(const StageCost& stage, int64_t sharers, double meeting);
double backward_with(const StageCost& stage, int64_t sharers, double meeting);

struct PartCosts {
  std::vector<int64_t> devices{};  ///< [part]
  std::vector<size_t> first{};     ///< stage of each part
  std::vector<double> forward{}, backward{};
  std::vector<std::vector<double>> late{};  ///< of each of its stages, from the last: StageCost::late_backward
  std::vector<int64_t> kept_bytes{};        ///< by a replica
};

/// Cut where a pipeline cuts (cut.h). `devices`: of a process. Throws Error for more parts than stages.
PartCosts parts_of(const StepCost& cost, int64_t devices, const Split& split);

/// What replicas in flight keep, at most. `ahead`: devices of parts that come after these in other processes.
int64_t kept_bytes(const PartCosts& parts, int64_t replicas, int64_t ahead = 0);

/// Of all gradients of a replica.
int64_t gradient_bytes(const StepCost& cost);

/// A part that is a process, as a step of its own.
struct ProcessPart {
  size_t first = 0;  // stage
  StepCost cost{};
  BorderCosts border{};  // behind it
};

/// Cut where processes cut (process_cut.h). One part where they divide nothing. Throws Error where there are more parts
/// than stages that may begin one.
std::vector<ProcessPart> process_parts_of(const StepCost& cost, int64_t parts, double seconds_a_byte = 0);

struct BucketCosts {
  std::vector<int64_t> numel, element_bytes, pieces;           ///< [bucket]
  std::vector<std::vector<std::pair<double, int64_t>>> marks;  ///< [part], as ProcessWork has them
};

/// Buckets as the gradients' plan makes them (gradients/plan.h), in the order in which gradients come.
BucketCosts buckets_of(const StepCost& cost, const PartCosts& parts, int64_t sharers);

}  // namespace lockstep::parallel
