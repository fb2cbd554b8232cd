// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "comm/device.h"
#include "comm/transport/algorithms.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/detail/canonical_plan.h"

namespace lockstep::comm {
namespace {

class CanonicalAllReduce {
 public:
  CanonicalAllReduce(Transport& transport, const Placement& placement, const TensorList& nodes,
                     const at::Tensor& result, ReduceOp op, Clock::time_point deadline)
      : transport_(transport),
        placement_(placement),
        nodes_(nodes),
        result_(result),
        op_(op),
        deadline_(deadline),
        plan_(placement, result.numel(), static_cast<int64_t>(result.element_size())),
        program_(TreeProgram::of_nodes(placement.replicas(), plan_.nodes())) {
    LOCKSTEP_ASSERT(plan_.nodes_of(me()) == static_cast<int64_t>(nodes.size()));
  }

  // On a GPU all of it is given to streams, and waited for at the end.
  void run() {
    if (plan_.meets_by_halves())
      run_by_halves();
    else if (plan_.is_small())
      run_small();
    else
      run_in_pieces();
    for (const auto& pending : unfinished_) pending->wait(deadline_);
  }

 private:
  struct Piece {
    std::vector<Interval> slices{};  // of the flat tensor, one a rank
    TensorList sources{};            // all nodes of my slice, from left to right
    at::Tensor scratch{};
    std::unique_ptr<Pending> incoming{};
  };

  int me() const { return transport_.rank(); }

  at::Tensor part(const at::Tensor& tensor, Interval interval) const {
    return tensor.narrow(0, interval.begin, interval.size());
  }

  /// What follows comes after these messages, where there are any.
  void order(std::unique_ptr<Pending> pending) {
    if (pending && !pending->order(deadline_)) unfinished_.push_back(std::move(pending));
  }

  // Software pipeline: while piece k is added up, piece k + 1 comes in and piece k - 1 goes out.
  void run_in_pieces() {
    Piece current = begin(0);
    std::unique_ptr<Pending> returning;
    for (int64_t piece = 0; piece < plan_.pieces(); ++piece) {
      order(std::move(current.incoming));
      Piece next;
      if (piece + 1 < plan_.pieces()) next = begin(piece + 1);
      add_up(current);
      auto sent = give_back(current);
      order(std::move(returning));
      returning = std::move(sent);
      current = std::move(next);
    }
    order(std::move(returning));
  }

  // Nodes meet as they do in the tree: left and right make their parent, which both halves of a pair then hold in part.
  void run_by_halves() {
    if (nodes_[0].const_data_ptr() != result_.const_data_ptr()) at::Tensor(result_).copy_(nodes_[0]);
    const at::Tensor scratch = at::empty({plan_.kept(me(), plan_.is_small() ? 0 : 1).size()}, result_.options());
    for (int64_t round = 0; round < plan_.rounds(); ++round) {
      const auto partner = static_cast<int>(CanonicalPlan::partner(me(), round));
      const at::Tensor mine = part(result_, plan_.kept(me(), round + 1));
      const at::Tensor theirs = scratch.narrow(0, 0, mine.numel());
      order(
          begin_exchange(transport_, {{partner, part(result_, plan_.kept(partner, round + 1))}}, {{partner, theirs}}));
      if (mine.numel() == 0) continue;
      const bool ends = round + 1 == plan_.rounds(), is_left = me() < partner;
      reduce_tensors(TreeProgram::of_leaves(2), op_ == ReduceOp::mean && !ends ? ReduceOp::sum : op_,
                     is_left ? TensorList{mine, theirs} : TensorList{theirs, mine}, {mine}, placement_.replicas());
    }
    for (int64_t round = plan_.is_small() ? 0 : plan_.rounds(); round-- > 0;) {
      const auto partner = static_cast<int>(CanonicalPlan::partner(me(), round));
      order(begin_exchange(transport_, {{partner, part(result_, plan_.kept(me(), round + 1))}},
                           {{partner, part(result_, plan_.kept(partner, round + 1))}}));
    }
  }

  // Everybody gets everything and adds it up for himself.
  void run_small() {
    Piece piece = begin(0);
    order(std::move(piece.incoming));
    add_up(piece);
  }

  Piece begin(int64_t number) {
    Piece piece{.slices = plan_.slices(number)};
    start(piece);
    return piece;
  }

  void start(Piece& piece) {
    const Interval mine = piece.slices[me()];
    int64_t foreign = 0;
    for (int64_t p = 0; p < transport_.size(); ++p) foreign += p == me() ? 0 : plan_.nodes_of(p);
    piece.scratch = at::empty({foreign, mine.size()}, result_.options());
    std::vector<Message> sends, receives;
    int64_t row = 0;
    for (int p = 0; p < transport_.size(); ++p)
      for (int64_t k = 0; k < plan_.nodes_of(p); ++k) {
        piece.sources.push_back(p == me() ? part(nodes_[k], mine) : piece.scratch[row++]);
        if (p != me() && mine.size() > 0) receives.push_back({p, piece.sources.back()});
      }
    for (int p = 0; p < transport_.size(); ++p)
      for (int64_t k = 0; p != me() && k < plan_.nodes_of(me()); ++k)
        if (piece.slices[p].size() > 0) sends.push_back({p, part(nodes_[k], piece.slices[p])});
    piece.incoming = transport_.start(sends, receives, kCollectives);
  }

  void add_up(const Piece& piece) {
    if (piece.slices[me()].size() > 0)
      reduce_tensors(program_, op_, piece.sources, {part(result_, piece.slices[me()])}, placement_.replicas());
  }

  std::unique_ptr<Pending> give_back(const Piece& piece) {
    std::vector<Message> sends, receives;
    for (int p = 0; p < transport_.size(); ++p) {
      if (p == me()) continue;
      if (piece.slices[me()].size() > 0) sends.push_back({p, part(result_, piece.slices[me()])});
      if (piece.slices[p].size() > 0) receives.push_back({p, part(result_, piece.slices[p])});
    }
    return transport_.start(sends, receives, kCollectives);
  }

  Transport& transport_;
  const Placement& placement_;
  const TensorList& nodes_;
  const at::Tensor& result_;
  const ReduceOp op_;
  const Clock::time_point deadline_;
  const CanonicalPlan plan_;
  const TreeProgram program_;
  std::vector<std::unique_ptr<Pending>> unfinished_;  // ordered, and not known to have gone well
};

}  // namespace

void canonical_all_reduce(Transport& transport, const Placement& placement, const TensorList& nodes,
                          const at::Tensor& result, ReduceOp op, Clock::time_point deadline) {
  if (result.numel() > 0) CanonicalAllReduce(transport, placement, nodes, result, op, deadline).run();
}

}  // namespace lockstep::comm
