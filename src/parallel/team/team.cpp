// SPDX-License-Identifier: Apache-2.0
// A team: its processes and devices, and the threads of a run.
#include "lockstep/parallel/team.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/connect.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/slices.h"
#include "lockstep/context/draws.h"
#include "lockstep/context/timeline_scope.h"
#include "lockstep/dense/detail/image_operations.h"
#include "lockstep/norm/detail/after_step.h"
#include "lockstep/numerics/detail/callers_streams.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/numerics/reduce.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "parallel/optim/optimizer_state.h"
#include "parallel/split/device_rows.h"
#include "parallel/team/agreement.h"
#include "parallel/team/audit.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {
namespace {

std::vector<Device> devices_of(const TeamOptions& options) {
  const std::string text = options.devices.empty() ? comm::usual_devices(options.group) : options.devices;
  const auto devices = parse_devices(text);
  std::set<c10::Device, decltype([](c10::Device a, c10::Device b) { return a.str() < b.str(); })> distinct;
  for (const Device& device : devices) distinct.insert(device.torch());
  require(distinct.size() == 1, "Team", "devices '", text, "' are ", distinct.size(),
          " devices of torch in one process, expected one: run a process for each GPU (lockstep run -n ",
          distinct.size(), ")");
  return devices;
}

Placement placement_of(const TeamOptions& options) {
  require(options.replicas >= 1, "Team", "replicas is ", options.replicas, ", expected at least 1");
  const int64_t processes = options.group.size();
  require(options.replicas >= processes, "Team", options.replicas, " replicas on ", processes,
          " processes, expected at least one replica a process");
  if (options.blocks.empty()) return Placement::even(options.replicas, processes);
  int64_t sum = 0;
  for (const int64_t block : options.blocks) {
    require(block >= 1, "Team", "a block has ", block, " replicas, expected at least 1");
    sum += block;
  }
  require(static_cast<int64_t>(options.blocks.size()) == processes && sum == options.replicas, "Team", "blocks are ",
          options.blocks.size(), " with ", sum, " replicas in all, expected ", processes, " (one a process) with ",
          options.replicas);
  return Placement(options.blocks);
}

void check_split(const TeamState& team) {
  const int64_t parts = team.options.split.parts, sharers = team.options.split.sharers;
  require(parts >= 1, "Team", "the network is to have ", parts, " parts, expected at least 1");
  require(sharers >= 1, "Team", "slices are to be shared by ", sharers, " devices, expected at least 1");
  if (parts == 1 && sharers == 1) return;
  const std::string split = to_string(team.options.split);
  require(team.options.slices % sharers == 0, "Team", "split ", split, " shares ", team.options.slices,
          " slices between ", sharers, " devices, expected a number that they divide, as --slices ", 2 * sharers);
  require(team.device.is_cpu(), "Team", "split ", split, " is for threads on a CPU, and this is ", team.device,
          ", where one thread of autograd's runs all backward passes: use --split data");
  require(!team.options.shares_backward, "Team", "split ", split,
          " needs a backward pass of each replica's own, and shares_backward joins them: leave one of them out");
  require(!team.has_other_processes() || team.threads >= parts * sharers, "Team", "split ", split, " needs ",
          parts * sharers, " threads in each process, and this one has ", team.threads,
          ": a part can't be a process yet. Give each process --devices ", parts * sharers, ", or use --split data");
}

void check_audit(const TeamState& team) {
  require(team.options.audit >= 0, "Team", "audit is ", team.options.audit, ", expected a number of steps, or 0");
  if (team.options.audit == 0) return;
  const Split& split = team.options.split;
  require(split.parts == 1 && split.sharers == 1, "Team",
          "audit computes a replica's gradient on one device, and split ", to_string(split),
          " divides it over several: use --split data, or no audit");
  require(team.threads > 1 || team.has_other_processes(), "Team",
          "audit computes gradients again on another device, and there is one, expected two or more: --devices 2, ",
          "two processes, or audit 0");
}

Slices slices_of(TeamState& team, int64_t member) {
  SliceHelpers* const helpers = team.helpers.get();
  if (helpers == nullptr) return Slices(team.options.slices);
  return Slices(team.options.slices,
                [helpers, replica = team.block.begin + member](
                    int64_t count, const std::function<void(int64_t)>& part) { helpers->run(replica, count, part); });
}

void write_spans(const TeamState& team, const std::string& file) {
  std::vector<TraceThread> threads;
  for (int64_t m = 0; m < team.members(); ++m) threads.push_back({team.block.begin + m, &team.timelines[m]});
  const auto devices = devices_of_parts(team.permits, team.options.split.parts);
  std::vector<TraceRow> rows = device_rows(threads, devices);
  if (team.helpers)
    for (TraceRow& row : team.helpers->rows())
      rows.push_back({text("device ", rows.size(), ", ", row.name), std::move(row.spans)});
  write_trace(file, team.options.group.rank(), threads, rows);
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

Team Team::create(const TeamOptions& options) {
  install_overrides();
  if (options.slices > 1) install_sliced_products();
  const auto state = std::make_shared<TeamState>();
  state->options = options;
  state->placement = placement_of(options);
  const auto devices = devices_of(options);
  state->device = devices[0].torch();
  require(options.slices >= 1, "Team", "slices is ", options.slices, ", expected 1 or more");
  require(options.slices == 1 || state->device.is_cpu(), "Team", options.slices, " slices on ", state->device,
          ", expected a CPU: autograd's thread of a GPU knows nothing of them yet");
  // One engine thread a GPU runs the backward passes of all callers: replicas there run one after the other.
  state->threads = devices[0].kind == Device::Kind::cuda ? 1 : static_cast<int64_t>(devices.size());
  state->permits = std::max<int64_t>(1, state->threads / std::max<int64_t>(1, options.split.sharers));
  state->block = state->placement.block(options.group.rank());
  check_split(*state);
  check_audit(*state);
  if (state->has_other_processes()) {
    require(options.group.backend() != "local" && options.group.backend() != "hierarchical", "Team",
            "the group's backend is ", options.group.backend(),
            ", expected a group of processes: the team runs the threads of a process itself");
    state->gradients = options.group.split(0);
    state->control = options.group.split(0);
    agree(*state, "Team", facts_of(*state));
  }
  return Team(state);
}

int64_t Team::replicas() const {
  return state_->placement.replicas();
}
Interval Team::block() const {
  return state_->block;
}
const Placement& Team::placement() const {
  return state_->placement;
}
const comm::Group& Team::group() const {
  return state_->options.group;
}

int64_t Team::bytes_sent() const {
  return state_->gradients.bytes_sent() + state_->control.bytes_sent();
}

std::string Team::describe() const {
  const TeamState& team = *state_;
  std::string out = text(replicas(), replicas() == 1 ? " replica" : " replicas");
  if (team.has_other_processes()) {
    out += text(" on ", team.placement.processes(), " processes (");
    for (int64_t p = 0; p < team.placement.processes(); ++p)
      out += text(p == 0 ? "" : "+", team.placement.block(p).size());
    out += ")";
  }
  const int64_t here = team.helpers_wanted() > 0 ? team.threads : std::min(team.permits, team.members());
  if (team.options.split.sharers > 1) out += text(", ", team.options.split.sharers, " devices a replica's slices,");
  if (team.options.split.parts > 1) out += text(", the network in ", team.options.split.parts, " parts,");
  return out +
         (team.device.is_cpu() ? text(" on ", here, here == 1 ? " thread" : " threads") : text(" on ", team.device)) +
         (team.has_other_processes() ? " here" : "");
}

std::vector<Timings> Team::timings() const {
  require(state_->crew == nullptr, "Team::timings", "the team is running, expected a run that has ended");
  std::vector<Timings> all;
  for (const Timeline& timeline : state_->timelines) all.push_back(timeline.timings());
  return all;
}

void Team::run(const std::function<void(Replica&)>& body) const {
  TeamState& team = *state_;
  require(team.crew == nullptr, "Team::run", "the team is running already, expected one run at a time");
  const int64_t parts = team.options.split.parts;
  const std::vector<int64_t> devices = devices_of_parts(team.permits, parts);
  team.crew = std::make_unique<Crew>(team.members(), devices);
  team.audit = team.options.audit > 0 ? std::make_shared<Audit>(team) : nullptr;
  team.pipeline = parts > 1 ? std::make_unique<Pipeline>(*team.crew, parts, devices) : nullptr;
  team.brought.assign(team.members(), nullptr);
  team.joins_backward = false;
  {
    const Lock lock(team.all_gathers_mutex);
    team.all_gathers_begun.assign(team.members(), 0);
    team.all_gathers_sent = 0;
  }
  const std::string trace = trace_file(team.options.group.rank(), team.options.group.size());
  team.timelines.clear();
  for (int64_t m = 0; m < team.members(); ++m) team.timelines.emplace_back(!trace.empty());
  const IntraOpThreadsKept kept;
  const auto streams = callers_streams();
  if (team.helpers_wanted() > 0)
    team.helpers = std::make_unique<SliceHelpers>(team.helpers_wanted(), team.options.split.sharers, !trace.empty());
  std::vector<std::thread> threads;
  const auto run_member = [&](int64_t m) {
    try {
      const ReplicaNumerics numerics;
      const OnCallersStreams on(streams, team.device);
      CrewPeers peers(team, m);
      Draws draws(RandomKey{team.options.seed, kSetupDraws});
      const Slices slices = slices_of(team, m);
      norm::AfterStep after_step;
      const ContextScope context({.peers = team.audit ? &team.audit->peers(m) : &peers,
                                  .draws = &draws,
                                  .timeline = &team.timelines[m],
                                  .images = &dense::image_operations(),
                                  .slices = slices.count() > 1 ? &slices : nullptr,
                                  .after_step = &after_step});
      if (team.pipeline) Context::current().borders = team.pipeline->borders(m);
      team.crew->enter(m);
      team.timelines[m].begin_step(0);
      Replica me(state_, m);
      body(me);
      after_step.run(peers);
      team.crew->leave(m);
    } catch (...) {  // the first counts; those that it stopped come after it
      team.crew->stop(m, std::current_exception());
    }
  };
  for (int64_t m = 0; m < team.members(); ++m) try {
      threads.emplace_back(run_member, m);
    } catch (const std::system_error& error) {
      team.crew->stop(m, no_thread(error));
      break;
    }
  for (auto& thread : threads) thread.join();
  for (Timeline& timeline : team.timelines) timeline.close();
  if (team.helpers) team.helpers->stop();
  const auto crew = std::move(team.crew);
  const auto pipeline = std::move(team.pipeline);
  team.networks.clear();
  {
    const Lock lock(team.all_gathers_mutex);
    team.all_gathers.clear();
  }
  team.joint_results.clear();
  team.made.reset();
  team.audit.reset();
  team.saved.reset();
  try {
    if (!trace.empty()) write_spans(team, trace);
  } catch (const std::exception& error) {
    if (!crew->error()) throw;
    log_warning(error.what());  // what has failed before says more
  }
  team.helpers.reset();
  if (!crew->error()) return;
  const int64_t replica = team.block.begin + crew->failed_member();
  if (team.has_other_processes())
    for (const auto& group : {team.gradients, team.control}) group.abort(text("replica ", replica, " failed"));
  rethrow_of_replica(replica, crew->error());
}

}  // namespace lockstep::parallel
