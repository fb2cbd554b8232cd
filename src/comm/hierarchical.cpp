// SPDX-License-Identifier: Apache-2.0
// Threads times processes. Within a process the threads' backend moves the data; between processes one thread, the
// leader, moves it for all. Messages between two ranks go straight through the backend that joins them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "comm/backend.h"
#include "comm/device.h"
#include "comm/transport/executor.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr int kLeader = 0;
// A reduction goes in pieces, so that threads add up the next one while this one is between processes.
constexpr int64_t kPieceBytes = 4 << 20;

class Hierarchical : public Backend {
 public:
  Hierarchical(std::shared_ptr<Backend> threads, std::shared_ptr<Backend> processes, Placement placement)
      : threads_(std::move(threads)),
        processes_(std::move(processes)),
        placement_(std::move(placement)),
        block_(placement_.block(processes_->rank())) {
    for (int64_t p = 0; p < placement_.processes(); ++p) widest_ = std::max(widest_, placement_.block(p).size());
  }

  // Whoever leaves an operation behind has given up: the others must not wait for it, nor it for them.
  ~Hierarchical() override {
    if (!collectives_.idle()) abort(text("rank ", rank(), " left the group before its operations ended"));
  }

  int rank() const override { return static_cast<int>(block_.begin) + threads_->rank(); }
  int size() const override { return static_cast<int>(placement_.replicas()); }
  std::string name() const override { return "hierarchical"; }
  at::Device device() const override { return processes_->device(); }
  std::chrono::milliseconds timeout() const override { return processes_->timeout(); }
  int64_t bytes_sent() const override { return processes_->bytes_sent(); }

  std::shared_ptr<WorkState> post(Call call) override {
    if (call.kind == Kind::send || call.kind == Kind::recv) return post_message(std::move(call), 0);
    const auto deadline = Clock::now() + call.timeout;
    const auto order = StreamOrder::after_current(call);
    const auto run_in_order = [this, order, call = std::move(call)] {
      try {
        const SideStream own(order.device());
        order.enter(order.device());
        run(call);
        StreamOrder::leave(order.device());
      } catch (const std::exception& error) {  // a CommError, or a GPU that refuses: nobody must wait for this rank
        abort(error.what());
        throw;
      }
    };
    return collectives_.post(run_in_order, deadline);
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members, int number) override;

  void abort(const std::string& reason) noexcept override {
    threads_->abort(reason);
    processes_->abort(reason);
  }

 private:
  bool leads() const { return threads_->rank() == kLeader; }
  int process_of(int rank) const { return static_cast<int>(placement_.process_of(rank)); }
  int thread_of(int rank) const { return static_cast<int>(rank - placement_.block(process_of(rank)).begin); }

  void run(const Call& call) {
    switch (call.kind) {
      case Kind::all_reduce:
        for (const auto& tensor : call.inputs) all_reduce(call, tensor.flatten());
        return;
      case Kind::reduce_scatter: {
        const auto all = call.inputs[0].flatten().clone();
        all_reduce(call, all);
        const int64_t length = call.outputs[0].numel();
        call.outputs[0].flatten().copy_(all.narrow(0, rank() * length, length));
        return;
      }
      case Kind::all_gather:
        for (size_t t = 0; t < call.inputs.size(); ++t)
          all_gather(call, call.inputs[t].flatten(), call.outputs[t].flatten());
        return;
      case Kind::broadcast:
        return broadcast(call);
      case Kind::gather:
      case Kind::scatter:
      case Kind::all_to_all:
        return exchange_messages(call);
      case Kind::barrier:
        finish(within(like(call, Kind::barrier)));
        if (leads()) between(like(call, Kind::barrier));
        finish(within(like(call, Kind::barrier)));
        return;
      case Kind::reduce_nodes:
      case Kind::send:
      case Kind::recv:
        LOCKSTEP_ASSERT(!"no collective of a hierarchical group");
    }
  }

  // The operations' own timeouts end them.
  static constexpr Clock::time_point kForever = Clock::time_point::max();

  static Call like(const Call& call, Kind kind) {
    Call part;
    part.kind = kind;
    part.op = call.op;
    part.order = call.order;
    part.timeout = call.timeout;
    return part;
  }

  std::shared_ptr<WorkState> within(Call call) { return threads_->post(std::move(call)); }

  // A failure among the threads names one of them.
  void finish(const std::shared_ptr<WorkState>& work) const {
    try {
      work->wait_until(kForever);
    } catch (const CommError& error) {
      const int rank = error.rank() < 0 ? -1 : static_cast<int>(block_.begin) + error.rank();
      throw CommError(rank, error.operation(), error.seconds(),
                      text(error.what(), " (ranks count this process's threads here)"));
    }
  }

  // A failure between processes is the failure of a process; name its first rank.
  void between(Call call) {
    try {
      processes_->post(std::move(call))->wait_until(kForever);
    } catch (const CommError& error) {
      const int first = error.rank() < 0 ? -1 : static_cast<int>(placement_.block(error.rank()).begin);
      throw CommError(first, error.operation(), error.seconds(), text(error.what(), " (ranks count processes here)"));
    }
  }

  std::shared_ptr<WorkState> broadcast_within(const Call& call, const at::Tensor& tensor, int root) {
    Call part = like(call, Kind::broadcast);
    part.peer = root;
    part.inputs = part.outputs = {tensor};
    return within(std::move(part));
  }

  struct Piece {
    at::Tensor tensor;
    TensorList nodes;  // the leader's
    std::shared_ptr<WorkState> reduced;
    std::shared_ptr<WorkState> returned;
  };

  // Every thread posts all its pieces; the leader carries each to the other processes as soon as its nodes are there.
  void all_reduce(const Call& call, const at::Tensor& flat) {
    const bool ring = call.order == Order::ring;
    const Interval block = ring ? Interval{0, block_.size()} : block_;
    const Placement placement = ring ? Placement({block_.size()}) : placement_;
    const auto count = static_cast<int64_t>(block_nodes(placement.replicas(), block).size());
    const int64_t step = kPieceBytes / static_cast<int64_t>(flat.element_size());
    std::vector<Piece> pieces;
    for (int64_t at = 0; at < flat.numel(); at += step) {
      Piece piece{flat.narrow(0, at, std::min(step, flat.numel() - at)), {}, {}, {}};
      Call part = like(call, Kind::reduce_nodes);
      if (call.op == ReduceOp::mean) part.op = ReduceOp::sum;
      part.peer = kLeader;
      part.placement = placement;
      part.block = block;
      part.inputs = {piece.tensor};
      if (leads()) {
        // A single node may take the place of the leader's own contribution.
        for (int64_t k = 0; k < count; ++k) piece.nodes.push_back(k == 0 ? piece.tensor : at::empty_like(piece.tensor));
        part.outputs = piece.nodes;
      }
      piece.reduced = within(std::move(part));
      pieces.push_back(std::move(piece));
    }
    for (Piece& piece : pieces) {
      finish(piece.reduced);
      if (leads()) carry(call, piece, ring);
      piece.returned = broadcast_within(call, piece.tensor, kLeader);
    }
    for (const Piece& piece : pieces) finish(piece.returned);
  }

  void carry(const Call& call, const Piece& piece, bool ring) {
    Call part = like(call, Kind::all_reduce);
    part.inputs = piece.nodes;
    part.outputs = {piece.tensor};
    if (!ring) part.placement = placement_;
    if (ring && call.op == ReduceOp::mean) part.op = ReduceOp::sum;
    between(std::move(part));
    if (ring && call.op == ReduceOp::mean) piece.tensor.div_(size());
  }

  // The leader's output is filled in: its own threads' parts first, then each process's by a broadcast of its leader.
  void all_gather(const Call& call, const at::Tensor& input, const at::Tensor& output) {
    const int64_t length = input.numel();
    Call part = like(call, Kind::gather);
    part.peer = kLeader;
    part.inputs = {input};
    if (leads()) part.outputs = {output.narrow(0, block_.begin * length, block_.size() * length)};
    finish(within(std::move(part)));
    for (int64_t p = 0; leads() && p < placement_.processes(); ++p) {
      const Interval block = placement_.block(p);
      Call share = like(call, Kind::broadcast);
      share.peer = static_cast<int>(p);
      share.inputs = share.outputs = {output.narrow(0, block.begin * length, block.size() * length)};
      between(std::move(share));
    }
    finish(broadcast_within(call, output, kLeader));
  }

  void broadcast(const Call& call) {
    const int process = process_of(call.peer);
    for (const auto& tensor : call.inputs) {
      const bool here = process == processes_->rank();
      if (here) finish(broadcast_within(call, tensor, thread_of(call.peer)));
      if (leads()) {
        Call part = like(call, Kind::broadcast);
        part.peer = process;
        part.inputs = part.outputs = {tensor};
        between(std::move(part));
      }
      if (!here) finish(broadcast_within(call, tensor, kLeader));
    }
  }

  // gather, scatter and all_to_all are nothing but messages.
  void exchange_messages(const Call& call) {
    std::vector<std::shared_ptr<WorkState>> works;
    const auto message = [&](Kind kind, int peer, const at::Tensor& tensor) {
      Call part = like(call, kind);
      part.peer = peer;
      (kind == Kind::send ? part.inputs : part.outputs) = {tensor};
      works.push_back(post_message(std::move(part), 1));
    };
    std::vector<int64_t> sent(size(), 0), received(size(), 0);  // elements to and from each rank
    for (int r = 0; r < size(); ++r) {
      if (call.kind == Kind::all_to_all) {
        sent[r] = call.input_counts[r];
        received[r] = call.output_counts[r];
      } else if (call.kind == Kind::gather) {
        if (r == call.peer) sent[r] = call.inputs[0].numel();
        if (rank() == call.peer) received[r] = call.inputs[0].numel();
      } else {
        if (r == call.peer) received[r] = call.outputs[0].numel();
        if (rank() == call.peer) sent[r] = call.outputs[0].numel();
      }
    }
    const auto from = call.inputs.empty() ? at::Tensor() : call.inputs[0].flatten();
    const auto to = call.outputs.empty() ? at::Tensor() : call.outputs[0].flatten();
    int64_t at_input = 0, at_output = 0;
    for (int r = 0; r < size(); ++r) {
      const auto out = sent[r] > 0 ? from.narrow(0, at_input, sent[r]) : at::Tensor();
      const auto in = received[r] > 0 ? to.narrow(0, at_output, received[r]) : at::Tensor();
      at_input += sent[r];
      at_output += received[r];
      if (r == rank()) {
        if (out.defined() && out.const_data_ptr() != in.const_data_ptr()) at::Tensor(in).copy_(out);
        continue;
      }
      if (out.defined()) message(Kind::send, r, out);
      if (in.defined()) message(Kind::recv, r, in);
    }
    for (const auto& work : works) work->wait_until(kForever);
  }

  // Tags keep threads, and the user's messages and our own, apart.
  std::shared_ptr<WorkState> post_message(Call call, int ours) {
    require(call.peer != rank(), name_of(call.kind), "the other rank is this rank ", rank(), ", expected another");
    const int process = process_of(call.peer), other = thread_of(call.peer), mine = threads_->rank();
    call.tag = 2 * call.tag + ours;
    if (process == processes_->rank()) {
      call.peer = other;
      return threads_->post(std::move(call));
    }
    const int64_t from = call.kind == Kind::send ? mine : other, to = call.kind == Kind::send ? other : mine;
    const int64_t tag = (call.tag * widest_ + from) * widest_ + to;
    require(tag < int64_t{1} << 30, name_of(call.kind), "tag is ", call.tag / 2, ", expected less than ",
            (int64_t{1} << 29) / (widest_ * widest_), " in a group of ", widest_, " threads a process");
    call.tag = static_cast<int>(tag);
    call.peer = process;
    return processes_->post(std::move(call));
  }

  const std::shared_ptr<Backend> threads_;
  const std::shared_ptr<Backend> processes_;
  const Placement placement_;
  const Interval block_;
  int64_t widest_ = 1;
  Executor collectives_{Executor::Mode::in_order};
};

// Collective over the threads of a process. The leader has `processes`; the others get it from the leader's memory.
std::shared_ptr<Backend> join(const std::shared_ptr<Backend>& threads, std::shared_ptr<Backend> processes) {
  const Group group(threads);
  auto address = at::zeros({1}, at::kLong);
  if (group.rank() == kLeader) address.fill_(reinterpret_cast<int64_t>(&processes));
  group.broadcast(address, kLeader).wait();
  processes = *reinterpret_cast<std::shared_ptr<Backend>*>(address.item<int64_t>());
  group.barrier().wait();  // from here on the leader's `processes` may go
  auto counts = at::zeros({processes->size()}, at::kLong);
  if (group.rank() == kLeader) {
    auto gathered = counts.to(processes->device());
    Group(processes).all_gather(gathered, at::full({1}, group.size(), gathered.options())).wait();
    counts = gathered.cpu();
  }
  group.broadcast(counts, kLeader).wait();
  const auto* count = counts.const_data_ptr<int64_t>();
  return std::make_shared<Hierarchical>(threads, std::move(processes),
                                        Placement(std::vector<int64_t>(count, count + counts.numel())));
}

std::shared_ptr<Backend> Hierarchical::subgroup(const std::vector<int>& members, int number) {
  std::vector<int> threads, processes;
  for (int member : members) {
    const int process = process_of(member);
    if (processes.empty() || processes.back() != process) {
      require(std::find(processes.begin(), processes.end(), process) == processes.end(), "split",
              "the keys mix ranks of several processes, expected each process's ranks next to each other");
      processes.push_back(process);
    }
    if (process == processes_->rank()) threads.push_back(thread_of(member));
  }
  // Groups split off side by side may have the same processes: the first member tells them apart.
  const int name = number * size() + members[0];
  auto mine = threads_->subgroup(threads, name);
  if (processes.size() == 1) return mine;
  return join(mine, threads[0] == threads_->rank() ? processes_->subgroup(processes, name) : nullptr);
}

}  // namespace

Group hierarchical_group(const Group& threads, const Group& processes) {
  require(threads.backend() == "local", "hierarchical_group", "threads is a group of backend ", threads.backend(),
          ", expected local");
  if (processes.size() == 1) return threads;
  require(processes.backend() != "local", "hierarchical_group",
          "processes is a group of backend local, expected one between processes");
  return Group(join(threads.backend_, processes.backend_));
}

}  // namespace lockstep::comm
