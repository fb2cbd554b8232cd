// SPDX-License-Identifier: Apache-2.0
// How gradients are added up over replicas and processes while backward passes still run.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <deque>
#include <optional>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/comm/work.h"
#include "lockstep/numerics/reduce.h"
#include "parallel/gradients/arrivals.h"
#include "parallel/gradients/plan.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// Adds up the gradients of all replicas. Those of this process lie where the backward pass left them, and are added
/// there (arrivals.h). Where there are other processes, a bucket leaves as soon as its last gradient is there, while
/// the backward pass goes on: the replica that brings it posts this process's nodes of the tree. Nobody waits for that;
/// buckets are posted in the plan's order, by whoever finds the next ones complete.
class GradientExchange {
 public:
  /// `arrivals`: of no step yet, or of one in which all have arrived. `wire`: what contributions and partial sums of
  /// float32 and float64 are rounded to, between processes and within one alike.
  GradientExchange(TeamState& team, GradientPlan plan, GradientArrivals arrivals, std::optional<at::ScalarType> wire);
  /// Of a member's gradients, [member][parameter], in the team's tree.
  static GradientArrivals arrivals_of(const TeamState& team, std::vector<std::vector<at::Tensor>> leaves);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  const GradientPlan& plan() const { return plan_; }

  /// While held, nothing is posted. `adds`: nor added, as others do that (compressor.h). Between steps.
  void hold(bool held, bool adds);

  /// Member `member`'s coming backward pass is its last of this step: its gradients count as they come.
  void expect(int64_t member) { arrivals_.expect(member); }
  /// Its backward pass has ended: what has not come by now is zero.
  void complete(int64_t member);
  /// Posts what has arrived while it was held.
  void post_all();
  const GradientArrivals& arrivals() const { return arrivals_; }

  /// The sum of a piece over all replicas, [size]. It lies in `into` where that is defined and memory is needed, else
  /// in a gradient or a bucket. Once every member's pass has ended, by any thread.
  at::Tensor sum(int64_t piece, const at::Tensor& into);
  /// Only waits for it.
  void wait(int64_t piece);

  /// Ends the step: gradients of a member are let go, buckets are free again.
  void clear(int64_t member);
  void reset();

 private:
  class Hook;
  struct Transit {
    std::vector<at::Tensor> nodes;  // of this process's block, the first becomes the result
    comm::Work work;                // posted by one thread, then awaited under `waiting`
    Mutex waiting;
    std::atomic<bool> arrived{false};
    std::atomic<int64_t> pending{0};
  };
  // One row a member of this process.
  struct Sources {
    std::vector<const std::byte*> rows;
    at::Tensor rounded;  // what they point into, where they are no gradients
  };

  void bring(int64_t member, int64_t parameter);
  void arrive(int64_t member, int64_t parameter);
  void post_complete();
  void post(int64_t bucket);
  static void wait_for(Transit& transit, int64_t bucket);
  at::ScalarType type_on_wire(at::ScalarType dtype) const;
  Sources sources(const Piece& piece) const;
  void add_up(at::ScalarType dtype, std::span<const std::byte* const> from, std::span<std::byte* const> to,
              int64_t count) const;
  void expect_buckets();
  bool crosses() const { return team_.has_other_processes(); }
  const std::vector<std::vector<at::Tensor>>& leaves() const { return arrivals_.leaves(); }

  TeamState& team_;
  GradientPlan plan_;
  GradientArrivals arrivals_;
  std::optional<at::ScalarType> wire_;
  bool held_ = false;
  at::Tensor zeros_;              // stands in for a gradient that did not come
  std::deque<Transit> transits_;  // one a bucket
  std::atomic<int64_t> postable_{0};
  int64_t posted_ = 0;
};

}  // namespace lockstep::parallel
