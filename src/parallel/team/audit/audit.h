// SPDX-License-Identifier: Apache-2.0
// Gradients that are computed again on another device, to find one that computes wrongly.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "lockstep/parallel/audit_error.h"
#include "lockstep/parallel/replica.h"
#include "parallel/optim/optimizer_state.h"
#include "parallel/team/audit/audited_pass.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// Every so many steps one replica's gradient is computed again before the update, and compared by hash. A device is a
/// core of this process, or another process. Where two devices differ a third is asked.
class Audit {
 public:
  explicit Audit(TeamState& team);
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  /// A member's peers: what it exchanges with them is kept while it is audited.
  Peers& peers(int64_t member);
  void compute_with(int64_t member, Replica::LossAgain loss_of) { losses_[member] = std::move(loss_of); }

  /// A member begins this step, and comes to a backward pass of it.
  void begin_step(int64_t member, int64_t step);
  void add_pass(int64_t member, int64_t step, double scale);

  /// Collective, when the gradients of a step are there. Throws AuditError on all processes where one is wrong.
  void check(int64_t member, const OptimizerState& optimizer, int64_t step);

 private:
  class RecordingPeers;

  bool is_due(int64_t step) const;
  int64_t audited_replica(int64_t step) const;
  bool audits(int64_t member, int64_t step) const;
  void compare(const OptimizerState& optimizer, int64_t step);
  Opinion compute_again(int64_t replica, int64_t step, const AuditedPass& pass, const std::vector<Opinion>& known,
                        const OptimizerState& optimizer);
  std::optional<Opinion> next_opinion(int process, int64_t replica, int64_t step, const AuditedPass& pass,
                                      const std::vector<Opinion>& known, const OptimizerState& optimizer);
  Opinion opinion_here(std::vector<int64_t> hashes, std::vector<int64_t> cores) const;
  int process_of(int64_t replica) const;
  void judge(const std::vector<Opinion>& opinions, const OptimizerState& optimizer, int64_t replica, int64_t step);

  TeamState& team_;
  std::deque<RecordingPeers> peers_;
  std::vector<Replica::LossAgain> losses_;  // one a member
  // Of the audited member, where it is here; written by its thread, read when all have met.
  AuditedPass pass_;
  std::vector<int64_t> cores_;
  std::optional<AuditError> verdict_;
};

}  // namespace lockstep::parallel
