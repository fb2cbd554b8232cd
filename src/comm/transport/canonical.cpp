// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "comm/device.h"
#include "comm/transport/algorithms.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

// Up to here one round of everything to everybody beats two rounds of slices.
constexpr int64_t kSmallBytes = 8 << 10;
// What one rank owns of a piece: large enough for a message to run at full speed, small enough to overlap.
constexpr int64_t kWireSliceBytes = 1 << 20;
// Slices begin at multiples of this, so that vector tails fall in the same places everywhere.
constexpr int64_t kAlignBytes = 64;

class CanonicalAllReduce {
 public:
  CanonicalAllReduce(Transport& transport, const Placement& placement, const TensorList& nodes,
                     const at::Tensor& result, ReduceOp op, Clock::time_point deadline)
      : transport_(transport), placement_(placement), nodes_(nodes), result_(result), op_(op), deadline_(deadline) {
    std::vector<Interval> all;
    for (int64_t p = 0; p < placement.processes(); ++p) {
      const auto mine = block_nodes(placement.replicas(), placement.block(p));
      counts_.push_back(static_cast<int64_t>(mine.size()));
      all.insert(all.end(), mine.begin(), mine.end());
    }
    LOCKSTEP_ASSERT(counts_[transport.rank()] == static_cast<int64_t>(nodes.size()));
    program_ = TreeProgram::of_nodes(placement.replicas(), all);
  }

  void run() {
    if (static_cast<int64_t>(result_.nbytes()) <= kSmallBytes) return run_small();
    const int64_t align = kAlignBytes / static_cast<int64_t>(result_.element_size());
    const int64_t slice = kWireSliceBytes / static_cast<int64_t>(result_.element_size());
    const int64_t step = slice * transport_.size();
    // Software pipeline: while piece k is added up, piece k + 1 comes in and piece k - 1 goes out.
    Piece current = begin(0, step, align);
    std::unique_ptr<Pending> returning;
    for (int64_t at = 0; at < result_.numel(); at += step) {
      current.incoming->wait(deadline_);
      Piece next;
      if (at + step < result_.numel()) next = begin(at + step, step, align);
      add_up(current);
      auto sent = give_back(current);
      if (returning) returning->wait(deadline_);
      returning = std::move(sent);
      current = std::move(next);
    }
    if (returning) returning->wait(deadline_);
  }

 private:
  struct Piece {
    std::vector<Interval> slices;  // of the flat tensor, one a rank
    TensorList sources;            // all nodes of my slice, from left to right
    at::Tensor scratch;
    std::unique_ptr<Pending> incoming;
  };

  int me() const { return transport_.rank(); }

  at::Tensor part(const at::Tensor& tensor, Interval interval) const {
    return tensor.narrow(0, interval.begin, interval.size());
  }

  // Everybody gets everything and adds it up for himself.
  void run_small() {
    Piece piece;
    piece.slices.assign(transport_.size(), {0, result_.numel()});
    start(piece);
    piece.incoming->wait(deadline_);
    add_up(piece);
  }

  Piece begin(int64_t at, int64_t step, int64_t align) {
    Piece piece;
    const int64_t length = std::min(step, result_.numel() - at);
    const int64_t each = (length + transport_.size() * align - 1) / (transport_.size() * align) * align;
    for (int64_t r = 0; r < transport_.size(); ++r)
      piece.slices.push_back({at + std::min(length, r * each), at + std::min(length, (r + 1) * each)});
    start(piece);
    return piece;
  }

  void start(Piece& piece) {
    const Interval mine = piece.slices[me()];
    int64_t foreign = 0;
    for (int64_t p = 0; p < transport_.size(); ++p) foreign += p == me() ? 0 : counts_[p];
    piece.scratch = at::empty({foreign, mine.size()}, result_.options());
    std::vector<Message> sends, receives;
    int64_t row = 0;
    for (int p = 0; p < transport_.size(); ++p)
      for (int64_t k = 0; k < counts_[p]; ++k) {
        piece.sources.push_back(p == me() ? part(nodes_[k], mine) : piece.scratch[row++]);
        if (p != me() && mine.size() > 0) receives.push_back({p, piece.sources.back()});
      }
    for (int p = 0; p < transport_.size(); ++p)
      for (int64_t k = 0; p != me() && k < counts_[me()]; ++k)
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
  std::vector<int64_t> counts_;  // nodes of each process
  TreeProgram program_;
};

}  // namespace

void canonical_all_reduce(Transport& transport, const Placement& placement, const TensorList& nodes,
                          const at::Tensor& result, ReduceOp op, Clock::time_point deadline) {
  if (result.numel() > 0) CanonicalAllReduce(transport, placement, nodes, result, op, deadline).run();
}

}  // namespace lockstep::comm
