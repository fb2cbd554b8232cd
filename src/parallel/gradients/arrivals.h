// SPDX-License-Identifier: Apache-2.0
// Gradients of a step, as replicas bring them.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/numerics/reduce.h"

namespace lockstep::parallel {

/// Which gradients of this process's replicas have come. Where it folds, those of four neighbours in the tree are added
/// as soon as all are there, by whoever brings the last one, and then four of such sums; the memory of all but one is
/// let go. So of 8 replicas that take turns 5 gradients are there at once, and of 64 it is 10. (Two at a time would be
/// fewer, and pass over memory nearly twice as often.) The additions are those of the tree, so the sum is too. The last
/// ones are left to whoever needs the sum.
///
/// Gradients may come from any threads at once; all else is between steps, or of the member itself.
class GradientArrivals {
 public:
  /// `leaves`: [member][parameter]. `program`: of the members' tree.
  GradientArrivals(std::vector<std::vector<at::Tensor>> leaves, const TreeProgram& program, int64_t replicas);

  const std::vector<std::vector<at::Tensor>>& leaves() const { return leaves_; }
  void fold(bool folds) { folds_ = folds; }

  /// Member `member`'s coming backward pass is its last of this step: its gradients count as they come.
  void expect(int64_t member);
  /// A gradient that counts is complete, or will not come any more. False: it had arrived before, or does not count
  /// yet.
  bool arrive(int64_t member, int64_t parameter);
  /// The parameters in the order in which this member's came in its last pass.
  std::span<const int64_t> order(int64_t member) const {
    return std::span(members_[member].order).first(members_[member].count);
  }
  bool counts(int64_t member) const { return members_[member].counts; }
  bool has_arrived(int64_t member, int64_t parameter) const { return members_[member].arrived[parameter] != 0; }
  /// Whether there was a gradient.
  bool came(int64_t member, int64_t parameter) const { return members_[member].came[parameter] != 0; }

  /// Once all have arrived: what is left to be added up, and how. A gradient that did not come is undefined.
  const TreeProgram& rest() const { return folds_ ? folded_ : program_; }
  std::vector<at::Tensor> rows(int64_t parameter) const;

  /// Ends the step: a member's gradients are let go; then all may come again.
  void clear(int64_t member);
  void reset();

  /// Of these parameters alone, as far as they have come.
  GradientArrivals of(std::span<const int64_t> parameters) const;

 private:
  struct Member {
    std::vector<uint8_t> arrived, came;  // [parameter]
    std::vector<int64_t> order;          // the first `count` of it
    size_t count = 0;
    bool counts = false;
  };
  // A sum: of which node of the tree, and in whose gradient it lies.
  struct Sum {
    Interval node;
    int64_t member = 0;
    int64_t next = -1;  // the fold that it goes into
  };
  struct Fold {
    std::vector<Sum> sums;
    TreeProgram program;
    int64_t next = -1;
  };

  std::vector<Sum> plan(Interval node, int64_t levels, bool is_last);
  TreeProgram program_of(std::span<const Sum> sums) const;
  void add(const Fold& fold, int64_t parameter);

  std::vector<std::vector<at::Tensor>> leaves_;
  int64_t replicas_;
  TreeProgram program_, folded_;
  bool folds_ = false;
  std::vector<Fold> planned_;
  std::vector<int64_t> first_;  // [member] the fold that its gradient goes into, or -1
  std::vector<Sum> rest_;
  std::vector<Member> members_;
  std::vector<std::atomic<uint8_t>> come_;  // [parameter][fold] sums that are there
};

}  // namespace lockstep::parallel
