// SPDX-License-Identifier: Apache-2.0
#include "simulation/experiment.h"

#include <numeric>
#include <thread>

#include "comm/transport/transport_backend.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/error.h"
#include "lockstep/parallel/replica_error.h"
#include "simulation/world/store.h"

namespace lockstep::simulation {
namespace {

constexpr Time kTimeoutTime = kTimeout.count() * kMillisecond;

// Cuts `whole` into so many parts of at least one.
std::vector<int64_t> cut(int64_t whole, int64_t parts, Draws& draws) {
  std::vector<int64_t> out(parts, 1);
  for (int64_t left = whole - parts; left > 0; --left) ++out[draws.below(parts)];
  return out;
}

// A third of the runs see no fault but delays; the others mostly lose a process.
std::vector<Fault> draw_faults(int processes, Draws& draws) {
  const auto fault = [&](Fault::Kind kind, Time lasts) {
    return Fault{kind, static_cast<int>(draws.below(processes)), draws.between(1, 25 * processes), lasts};
  };
  const Time brief = draws.between(1, 5000) * kMillisecond;
  const Time endless = 3 * kTimeoutTime;
  switch (draws.below(12)) {
    case 0:
    case 1:
    case 2:
      return {};
    case 3:
      return {fault(Fault::Kind::stall, brief)};
    case 4:
      return {fault(Fault::Kind::stall, endless)};
    case 5: {
      Fault partition = fault(Fault::Kind::partition, draws.chance(0.5) ? brief : endless);
      partition.process = static_cast<int>(draws.between(1, processes - 1));
      return {partition};
    }
    case 6:
      return {fault(Fault::Kind::vanish, 0)};
    case 7:
      return {fault(Fault::Kind::crash, 0), fault(Fault::Kind::crash, 0)};
    case 8:
      return {fault(Fault::Kind::stall, brief), fault(Fault::Kind::crash, 0)};
    default:
      return {fault(Fault::Kind::crash, 0)};
  }
}

Ending ending_of(const std::function<std::string()>& work) {
  Ending ending;
  const auto failed = [&](const std::exception& error) {
    ending.error = error.what();
    if (const auto* comm = dynamic_cast<const comm::CommError*>(&error)) {
      ending.is_comm_error = true;
      ending.named = comm->rank();
    }
  };
  try {
    ending.hash = work();
  } catch (const parallel::ReplicaError& replica) {
    try {
      std::rethrow_exception(replica.cause());
    } catch (const std::exception& error) {
      failed(error);
    }
  } catch (const std::exception& error) {
    failed(error);
  }
  ending.when = Scheduler::of_this_thread()->now();
  return ending;
}

}  // namespace

Plan plan_of(uint64_t seed) {
  Draws draws(seed ^ 0x5EEDu);
  Plan plan;
  plan.processes = static_cast<int>(draws.between(2, 4));
  plan.recipe.replicas = draws.between(plan.processes, 6);
  plan.recipe.batch_norm = draws.chance(0.3);
  plan.recipe.divides_state = draws.chance(0.3);
  plan.blocks = cut(plan.recipe.replicas, plan.processes, draws);
  plan.devices = draws.chance(0.7) ? 1 : 2;
  plan.reads_late = draws.chance(0.5);
  plan.faults = draw_faults(plan.processes, draws);
  return plan;
}

std::string to_text(const Plan& plan) {
  std::string out = text(plan.recipe.replicas, " replicas on ", plan.processes, " processes (");
  for (const int64_t& block : plan.blocks) out += text(&block == plan.blocks.data() ? "" : "+", block);
  out += text("), ", plan.devices, " devices each", plan.recipe.batch_norm ? ", batch norm" : "",
              plan.recipe.divides_state ? ", divided state" : "", plan.reads_late ? ", late reads" : "");
  for (const Fault& fault : plan.faults) out += "; " + to_text(fault);
  return out;
}

Result run(uint64_t seed, const Plan& plan) {
  Scheduler scheduler(seed);
  const auto store = std::make_shared<Store>(scheduler);
  Network network(scheduler, store, {.reads_late = plan.reads_late, .faults = plan.faults});
  std::vector<int> all(plan.processes);
  std::iota(all.begin(), all.end(), 0);
  Result result;
  result.endings.resize(plan.processes);
  std::set<int> ended;
  const auto process = [&](int p) {
    Scheduler::this_thread()->process = p;
    Ending ending = ending_of([&] {
      const comm::Group group(comm::make_transport_backend(network.join("main", all, p, kTimeout), kTimeout));
      const std::string hash = train(plan.recipe, group, plan.blocks, plan.devices);
      group.finish();
      return hash;
    });
    if (!network.dead().contains(p)) result.endings[p] = std::move(ending);
    ended.insert(p);
    scheduler.wake(&network.dead());
  };
  scheduler.run(text("seed ", seed, " (", to_text(plan), ")"), [&] {
    std::vector<std::jthread> processes;
    for (int p = 0; p < plan.processes; ++p) processes.emplace_back(process, p);
    const auto all_have_ended = [&] {
      for (int p = 0; p < plan.processes; ++p)
        if (!ended.contains(p) && !network.dead().contains(p)) return false;
      return true;
    };
    while (!all_have_ended()) scheduler.block(&network.dead(), "the end of the processes");
    result.dead = network.dead();
    result.stalled = network.disturbed();
    result.trace = scheduler.trace();
    result.messages = network.messages();
    network.bury_dead();
  });
  return result;
}

std::string complaint(const Plan& plan, const Result& result, const std::string& expected) {
  bool endless = false;
  for (const Fault& fault : plan.faults) endless |= fault.lasts > kTimeoutTime && fault.at_message <= result.messages;
  for (int p = 0; p < plan.processes; ++p) {
    const Ending& ending = result.endings[p];
    if (result.dead.contains(p)) continue;
    const auto say = [&](const std::string& what) { return text("process ", p, " ", what); };
    if (ending.error.empty()) {
      if (ending.hash != expected) return say("ended with other weights than the reference");
      continue;
    }
    if (!ending.is_comm_error) return say(text("failed with another error than a CommError: ", ending.error));
    if (result.dead.empty() && !endless) return say(text("failed, though nobody was lost: ", ending.error));
    if (ending.named < 0) return say(text("names nobody: ", ending.error));
    const bool right = result.dead.contains(ending.named) || (endless && result.dead.empty());
    if (!right) return say(text("names rank ", ending.named, ", which lives: ", ending.error));
  }
  return {};
}

}  // namespace lockstep::simulation
