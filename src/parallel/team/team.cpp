// SPDX-License-Identifier: Apache-2.0
// A team: its processes and devices, and the threads of a run.
#include "lockstep/parallel/team.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

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
#include "parallel/split/processes/messages/parcel.h"
#include "parallel/team/agreement.h"
#include "parallel/team/audit/audit.h"
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

Placement placement_of(const TeamOptions& options, int64_t processes, const std::string& what) {
  require(options.replicas >= 1, "Team", "replicas is ", options.replicas, ", expected at least 1");
  require(options.replicas >= processes, "Team", options.replicas, " replicas on ", processes, " ", what,
          ", expected at least one replica for each");
  if (options.blocks.empty()) return Placement::even(options.replicas, processes);
  int64_t sum = 0;
  for (const int64_t block : options.blocks) {
    require(block >= 1, "Team", "a block has ", block, " replicas, expected at least 1");
    sum += block;
  }
  require(static_cast<int64_t>(options.blocks.size()) == processes && sum == options.replicas, "Team", "blocks are ",
          options.blocks.size(), " with ", sum, " replicas in all, expected ", processes,
          what == "processes" ? " (one a process)" : " (one a copy of the network)", " with ", options.replicas);
  return Placement(options.blocks);
}

// Where some process has too few threads for the parts, the processes divide the network, and the threads of each share
// the slices of its part. All decide alike.
PartPlace part_of(const TeamOptions& options, int64_t threads) {
  const comm::Group& group = options.group;
  const int64_t parts = options.split.parts, sharers = options.split.sharers, wanted = parts * sharers;
  if (group.size() == 1) return {};
  const auto least = at::tensor({parts, -parts, sharers, -sharers, threads - wanted}, at::kLong);
  group.all_reduce(least, ReduceOp::min).wait();
  const auto* found = least.const_data_ptr<int64_t>();
  if (found[4] >= 0 || (found[1] == -1 && found[3] == -1)) return {};
  const std::string split = to_string(options.split);
  require(found[0] == -found[1] && found[2] == -found[3], "Team", "split ", split,
          " here is another one in other processes, of which one has too few threads for its own, expected the same");
  const int64_t least_threads = found[4] + wanted;
  require(sharers <= least_threads, "Team", "split ", split, " needs ", sharers,
          " threads in each process, as processes can't share the slices of a layer, and one has ", least_threads,
          ": give each process --devices ", sharers, ", or use --split ", parts > 1 ? text("p", parts) : "data");
  if (group.size() % parts != 0 && group.may_lose_members()) {
    if (group.rank() == 0)
      log_info("split ", split, " on ", group.size(), " processes: each has the whole network as long as they are ",
               "no multiple of ", parts);
    return {};
  }
  require(group.size() % parts == 0, "Team", "split ", split, " on ", group.size(),
          " processes, expected a number that ", parts, " divides, so that each is one part, or ", wanted,
          " threads in each (--devices ", wanted, "), which then divide the network");
  return {.parts = parts, .part = group.rank() % parts, .copy = group.rank() / parts};
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
  const auto devices = devices_of_parts(team.permits, team.thread_parts());
  std::vector<TraceRow> rows = device_rows(threads, devices);
  if (team.has_process_parts())
    for (TraceRow& row : rows) row.name += text(", part ", team.part.part);
  if (team.helpers)
    for (TraceRow& row : team.helpers->rows())
      rows.push_back({text("device ", rows.size(), ", ", row.name), std::move(row.spans)});
  write_trace(file, team.options.group.rank(), threads, rows);
}

}  // namespace

Team Team::create(const TeamOptions& options) {
  install_overrides();
  if (options.slices > 1) install_sliced_products();
  const auto state = std::make_shared<TeamState>();
  state->options = options;
  const auto devices = devices_of(options);
  state->device = devices[0].torch();
  require(options.slices >= 1, "Team", "slices is ", options.slices, ", expected 1 or more");
  require(options.slices == 1 || state->device.is_cpu(), "Team", options.slices, " slices on ", state->device,
          ", expected a CPU: autograd's thread of a GPU knows nothing of them yet");
  // One engine thread a GPU runs the backward passes of all callers: replicas there run one after the other.
  state->threads = devices[0].kind == Device::Kind::cuda ? 1 : static_cast<int64_t>(devices.size());
  state->permits = std::max<int64_t>(1, state->threads / std::max<int64_t>(1, options.split.sharers));
  check_split(*state);
  require(
      options.group.size() == 1 || (options.group.backend() != "local" && options.group.backend() != "hierarchical"),
      "Team", "the group's backend is ", options.group.backend(),
      ", expected a group of processes: the team runs the threads of a process itself");
  state->part = part_of(options, state->threads);
  const int64_t copies = options.group.size() / state->part.parts;
  state->placement = placement_of(options, copies, state->has_process_parts() ? "copies of the network" : "processes");
  state->block = state->placement.block(state->has_process_parts() ? state->part.copy : options.group.rank());
  check_audit(*state);
  if (options.group.size() > 1) {
    const auto part = static_cast<int>(state->part.part), copy = static_cast<int>(state->part.copy);
    state->gradients = options.group.split(part);
    state->control = options.group.split(part);
    state->everyone = state->control;
    if (state->has_process_parts()) {
      state->everyone = options.group.split(0);
      state->messages = options.group.split(0);
      state->line = options.group.split(copy);
    }
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

bool Team::processes_hold_parts() const {
  return state_->has_process_parts();
}

bool Team::holds_first_part() const {
  return state_->part.part == 0;
}

int64_t Team::bytes_sent() const {
  int64_t bytes = 0;
  for (const comm::Group& group : state_->groups()) bytes += group.bytes_sent();
  return bytes;
}

std::string Team::describe() const {
  const TeamState& team = *state_;
  std::string out = text(replicas(), replicas() == 1 ? " replica" : " replicas");
  if (team.has_process_parts()) out += text(", the network in ", team.part.parts, " parts, a process each");
  if (team.has_other_processes()) {
    out += text(" on ", team.placement.processes(), team.has_process_parts() ? " copies (" : " processes (");
    for (int64_t p = 0; p < team.placement.processes(); ++p)
      out += text(p == 0 ? "" : "+", team.placement.block(p).size());
    out += ")";
  }
  const int64_t here = team.helpers_wanted() > 0 ? team.threads : std::min(team.permits, team.members());
  if (team.options.split.sharers > 1) out += text(", ", team.options.split.sharers, " devices a replica's slices,");
  if (team.thread_parts() > 1) out += text(", the network in ", team.options.split.parts, " parts,");
  return out +
         (team.device.is_cpu() ? text(" on ", here, here == 1 ? " thread" : " threads") : text(" on ", team.device)) +
         (team.everyone.size() > 1 ? " here" : "");
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
  const int64_t parts = team.thread_parts(), parts_ahead = team.part.parts - 1 - team.part.part;
  const std::vector<int64_t> devices = devices_of_parts(team.permits, parts);
  team.crew =
      std::make_unique<Crew>(team.members(), devices, parts_ahead * team.permits, team.part.part * team.permits);
  if (team.has_process_parts())
    team.process_pipeline = std::make_unique<ProcessPipeline>(*team.crew, team.part, team.messages);
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
      if (team.process_pipeline) Context::current().borders = team.process_pipeline->borders(m);
      team.crew->enter(m);
      team.timelines[m].begin_step(0);
      Replica me(state_, m);
      body(me);
      after_step.run(peers);
      if (team.process_pipeline) team.process_pipeline->leave(m);
      team.crew->leave(m);
    } catch (...) {  // the first counts; those that it stopped come after it
      const std::exception_ptr error = std::current_exception();
      team.crew->stop(m, team.process_pipeline ? UnfilledWeights::explained(error) : error);
      // Others may wait for messages, here and there.
      if (team.process_pipeline) team.messages.abort(text("replica ", team.block.begin + m, " failed"));
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
  const auto process_pipeline = std::move(team.process_pipeline);
  team.networks.clear();
  {
    const Lock lock(team.all_gathers_mutex);
    team.all_gathers.clear();
  }
  team.joint_results.clear();
  team.made.reset();
  team.audit.reset();
  team.saved.clear();
  team.agreed.reset();
  try {
    if (!trace.empty()) write_spans(team, trace);
  } catch (const std::exception& error) {
    if (!crew->error()) throw;
    log_warning(error.what());  // what has failed before says more
  }
  team.helpers.reset();
  if (!crew->error()) return;
  const int64_t replica = team.block.begin + crew->failed_member();
  for (const comm::Group& group : team.groups())
    if (group.size() > 1) group.abort(text("replica ", replica, " failed"));
  rethrow_of_replica(replica, crew->error());
}

}  // namespace lockstep::parallel
