// SPDX-License-Identifier: Apache-2.0
// What replicas of a process exchange with each other and with those of other processes.
#include "parallel/team/team_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "lockstep/archive/detail/disk_copy.h"
#include "lockstep/base/error.h"
#include "lockstep/context/timeline_scope.h"
#include "lockstep/numerics/reduce.h"
#include "parallel/split/processes/messages/parcel.h"

namespace lockstep::parallel {
namespace {

constexpr size_t kParcelBytes = size_t{32} << 20;  // or one tensor that is larger

// The last one is empty.
std::vector<Parcel> in_parcels(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<Parcel> out(1);
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    if (bytes > 0 && bytes + tensor.nbytes() > kParcelBytes) {
      out.emplace_back();
      bytes = 0;
    }
    out.back().words.push_back(name);
    out.back().tensors.push_back(tensor);
    bytes += tensor.nbytes();
  }
  if (!tensors.empty()) out.emplace_back();
  return out;
}

// What other parts hold lies on the disk, so that no process needs the memory for all of the network.
void receive_parcels(const comm::Group& line, int from, std::map<std::string, at::Tensor>& into) {
  for (;;) {
    Arrival next;
    const Parcel parcel = receive(line, from, 0, next);
    if (parcel.words.empty()) return;
    for (size_t w = 0; w < parcel.words.size(); ++w)
      into.emplace(parcel.words[w], archive::disk_copy(parcel.tensors[w]));
  }
}

}  // namespace

at::Tensor TeamState::sum_rows(const at::Tensor& rows, const comm::Group& group) const {
  const auto program = has_other_processes() ? TreeProgram::of_block(placement.replicas(), block)
                                             : TreeProgram::of_leaves(placement.replicas());
  comm::TensorList nodes;
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (int64_t m = 0; m < rows.size(0); ++m) from.push_back(static_cast<const std::byte*>(rows[m].const_data_ptr()));
  for (size_t k = 0; k < program.results().size(); ++k) {
    nodes.push_back(at::empty({rows.size(1)}, rows.options()));
    to.push_back(static_cast<std::byte*>(nodes.back().mutable_data_ptr()));
  }
  reduce(program, ReduceOp::sum, rows.scalar_type(), from, to, rows.size(1));
  if (has_other_processes()) {
    const PhaseScope waiting(Phase::exposed);
    group.all_reduce_blocks(placement, nodes, nodes[0]).wait();
  }
  return nodes[0];
}

std::vector<comm::Group> TeamState::groups() const {
  if (!has_process_parts()) return {gradients, control};
  return {gradients, control, everyone, messages, line};
}

void TeamState::agree_over_parts(const at::Tensor& values) const {
  if (!has_process_parts()) return;
  const PhaseScope waiting(Phase::wait, "other parts of the network");
  line.all_reduce(values, ReduceOp::max).wait();
}

void TeamState::join_parts(std::vector<std::map<std::string, at::Tensor>>& held,
                           const std::vector<bool>& wanted) const {
  if (!has_process_parts() || process_pipeline->cut() == nullptr) return;
  const auto mine = at::zeros({static_cast<int64_t>(held.size())}, at::kLong);
  for (size_t m = 0; m < held.size(); ++m) mine[static_cast<int64_t>(m)] = wanted[m] ? 1 : 0;
  const auto wishes = at::empty({part.parts * mine.numel()}, at::kLong);
  line.all_gather(wishes, mine).wait();
  std::vector<comm::Work> sent;
  std::vector<std::map<std::string, at::Tensor>> joined = held;
  for (size_t m = 0; m < held.size(); ++m) {
    const std::vector<Parcel> parcels = in_parcels(held[m]);
    for (int other = 0; other < part.parts; ++other) {
      if (other == part.part || wishes[other * mine.numel() + static_cast<int64_t>(m)].item<int64_t>() == 0) continue;
      for (const Parcel& parcel : parcels) {
        FirstMessage first;
        for (comm::Work& work : post(line, other, 0, parcel, first)) sent.push_back(std::move(work));
      }
    }
    for (int other = 0; wanted[m] && other < part.parts; ++other)
      if (other != part.part) receive_parcels(line, other, joined[m]);
  }
  for (comm::Work& work : sent) work.wait();
  held = std::move(joined);
}

RowGathering::RowGathering(const TeamState& team, const at::Tensor& rows) : team_(team), rows_(rows) {
  if (!team_.has_other_processes()) return;
  int64_t widest = 0;
  for (int64_t p = 0; p < placement().processes(); ++p) widest = std::max(widest, placement().block(p).size());
  const auto sent = rows.new_zeros({widest, rows.size(1)});
  sent.narrow(0, 0, rows.size(0)).copy_(rows);
  rows_ = rows.new_empty({placement().processes() * widest, rows.size(1)});
  arriving_ = team_.control.all_gather(rows_, sent);
}

at::Tensor RowGathering::wait() {
  if (!arriving_) return rows_;
  const PhaseScope exchanging(Phase::exchange);
  arriving_->wait();
  arriving_.reset();
  const int64_t widest = rows_.size(0) / placement().processes();
  std::vector<at::Tensor> parts;
  for (int64_t p = 0; p < placement().processes(); ++p)
    parts.push_back(rows_.narrow(0, p * widest, placement().block(p).size()));
  return rows_ = at::cat(parts);
}

at::Tensor TeamState::gather_rows(const at::Tensor& rows) const {
  return RowGathering(*this, rows).wait();
}

std::shared_ptr<AllGather> TeamState::bring(int64_t member, const at::Tensor& row) {
  const Lock lock(all_gathers_mutex);
  const uint64_t number = all_gathers_begun[member]++ - all_gathers_sent;
  if (number == all_gathers.size()) all_gathers.push_back(std::make_shared<AllGather>(members()));
  const auto& all_gather = all_gathers[number];
  all_gather->rows[member] = row;
  return all_gather;
}

void TeamState::send_next() {
  std::shared_ptr<AllGather> next;
  {
    const Lock lock(all_gathers_mutex);
    next = std::move(all_gathers.front());
    all_gathers.pop_front();
    ++all_gathers_sent;
  }
  const at::Tensor& first = next->rows[0];
  for (const at::Tensor& row : next->rows)
    require(row.sizes() == first.sizes() && row.scalar_type() == first.scalar_type(), "all_gather",
            "one replica brings ", row.scalar_type(), row.sizes(), ", another ", first.scalar_type(), first.sizes(),
            ", expected the same on all");
  const at::Tensor rows = at::stack(next->rows);
  const Lock lock(next->waiting);
  next->gathering.emplace(*this, rows);
}

at::Tensor CrewPeers::all_gather(const at::Tensor& mine) {
  return begin_all_gather(mine)();
}

Peers::Gathered CrewPeers::begin_all_gather(const at::Tensor& mine) {
  constexpr const char* what = "all_gather";
  require(mine.dim() == 1, what, "the tensor has sizes ", mine.sizes(), ", expected one dimension");
  const auto brought = team_.bring(member_, mine.detach());
  const uint64_t arrival = team_.crew->arrive(member_, what, [&] {
    const PhaseScope exchanging(Phase::exchange);
    team_.send_next();
  });
  return [this, brought, arrival] {
    team_.crew->await(member_, arrival, what);
    const Lock lock(brought->waiting);
    return brought->gathering->wait();
  };
}

Peers::GatherRows CrewPeers::gather_rows() const {
  return [&team = team_](const at::Tensor& mine) {
    return [gathering = std::make_shared<RowGathering>(team, mine)] { return gathering->wait(); };
  };
}

at::Tensor CrewPeers::meet(const std::vector<at::Tensor>& mine, const Joint& joint) {
  struct Part {
    const std::vector<at::Tensor>& tensors;
    const Joint& joint;
  };
  team_.meet<Part>(member_, "a synchronised batch norm", {mine, joint},
                   [&](std::span<const Part* const> all) -> CrewWork {
                     std::vector<std::vector<at::Tensor>> brought;
                     for (const Part* part : all) brought.push_back(part->tensors);
                     team_.joint_results = all[0]->joint(brought);  // the first one's, whoever comes last
                     team_.joins_backward = true;
                     return {};
                   });
  return std::move(team_.joint_results[member_]);
}

}  // namespace lockstep::parallel
