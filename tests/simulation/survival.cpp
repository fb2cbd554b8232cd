// SPDX-License-Identifier: Apache-2.0
#include "simulation/survival.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "comm/meeting/membership_connection.h"
#include "comm/transport/transport_backend.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/detail/members.h"
#include "lockstep/comm/error.h"
#include "lockstep/context/stages.h"
#include "lockstep/numerics/random.h"
#include "lockstep/parallel/survive.h"
#include "lockstep/run/weights.h"
#include "lockstep/train/survive.h"
#include "simulation/world/store.h"

namespace lockstep::simulation {
namespace {

namespace members = comm::members;

constexpr std::chrono::milliseconds kTimeout{60000};
// Far less: a loss is noticed by its closed connections and by the launcher, and not by a time-out. But who dies on the
// way into a new group has the others wait for this long before they ask the launcher again.
constexpr std::chrono::seconds kMeeting{10};
constexpr Time kLongest = 5 * kSecond;  // without such waits
constexpr int64_t kReplicas = 4;

struct NetImpl : torch::nn::Module, Staged {
  explicit NetImpl(bool batch_norm) {
    first = register_module("first", torch::nn::Linear(16, 5));
    if (batch_norm) norm = register_module("norm", torch::nn::BatchNorm1d(5));
    last = register_module("last", torch::nn::Linear(5, 3));
  }
  std::vector<Stage> stages() override {
    return {{"first", [this](const at::Tensor& x) { return first(x.flatten(1)); }},
            {"last", [this](const at::Tensor& x) { return last(norm ? norm(x) : x); }}};
  }
  at::Tensor forward(const at::Tensor& x) { return fold<at::Tensor>(stages(), x); }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

train::Task task_of(const SurvivalPlan& plan) {
  static const auto train = data::open_dataset("synthetic:1x4x4:3:24", data::Subset::train);
  static const auto test = data::open_dataset("synthetic:1x4x4:3:12", data::Subset::test);
  return {.model = "net",
          .network = [batch_norm =
                          plan.batch_norm] { return models::Classifier::of(std::make_shared<NetImpl>(batch_norm)); },
          .train = train,
          .test = test};
}

run::Config config_of(const SurvivalPlan& plan) {
  run::Config config{.batch = 8, .replicas = kReplicas, .epochs = 2, .lr = 0.05, .momentum = 0.9};
  config.devices = "cpu:1";
  config.split = plan.parts ? "p2" : "data";
  config.copy_every = plan.copy_every;
  config.check_data = true;
  config.workers = 0;
  config.quiet = true;
  return config;
}

parallel::TeamOptions team_of(const SurvivalPlan& plan) {
  return {.replicas = kReplicas, .devices = "cpu:1", .seed = 5, .split = {.parts = plan.parts ? 2 : 1}};
}

// A loop of a user's own. What it ends with goes to `hash`, by whoever has replica 0.
void own_loop(parallel::Replica& me, const SurvivalPlan& plan, std::string& hash) {
  const auto net = me.share(std::make_shared<NetImpl>(plan.batch_norm));
  auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9});
  const at::Tensor seen = at::zeros({1}, at::kDouble);
  for (me.keep(optimizer, {seen}); me.steps() < 7; me.keep(optimizer, {seen})) {
    const at::Tensor x = me.share_of(normal_(at::empty({8, 16}), RandomKey{3}.fold(static_cast<uint64_t>(me.steps()))));
    const at::Tensor y = x.argmax(1).remainder(3);
    seen.add_(me.number() + me.steps());
    me.step(torch::nn::functional::cross_entropy(net->forward(x), y), optimizer, static_cast<double>(x.size(0)));
  }
  auto all = me.state_dict(*net);
  all["seen"] = me.sum(seen);
  if (me.number() == 0) hash = run::hash_of(all);
}

// What `lockstep run --survive` does, and the processes that it starts.
class Launcher {
 public:
  Launcher(Scheduler& scheduler, const SurvivalPlan& plan)
      : scheduler_(scheduler),
        plan_(plan),
        store_(std::make_shared<Store>(scheduler)),
        network_(scheduler, store_, {.reads_late = plan.reads_late, .faults = plan.faults}),
        key_value_(store_->connect(-1)) {}

  SurvivalResult run() {
    for (int rank = 0; rank < plan_.processes; ++rank) member_[rank] = start(rank, /*is_newcomer=*/false);
    tell();
    while (!watch()) scheduler_.sleep(kMillisecond);
    result_.lost = static_cast<int>(network_.dead().size());
    result_.when = scheduler_.now();
    // Who died with all done may have been the one that led; else the end is somebody's.
    if (result_.hash.empty() && result_.complaint.empty() && !member_.empty() &&
        !key_value_->check({members::done_key}))
      result_.complaint = "nobody came to the end";
    for (int process = 0; process < static_cast<int>(processes_.size()); ++process) network_.lose(process);
    network_.bury_dead();
    processes_.clear();
    return result_;
  }

 private:
  int start(int rank, bool is_newcomer) {
    const auto process = static_cast<int>(processes_.size());
    processes_.emplace_back([this, rank, process, is_newcomer] { work(rank, process, is_newcomer); });
    return process;
  }

  void tell() {
    members::Generation generation{.number = number_++, .enough = true, .ranks = {}};
    std::vector<int>& processes = generations_[generation.number];
    for (const auto& [rank, process] : member_) {
      generation.ranks.push_back(rank);
      processes.push_back(process);
    }
    key_value_->set(std::string(members::key), to_text(generation));
    result_.generations = number_;
  }

  // True once no process is left at work.
  bool watch() {
    if (!result_.complaint.empty()) return true;
    bool changed = false;
    std::vector<int> lost_ranks;
    for (auto at = member_.begin(); at != member_.end();) {
      const auto [rank, process] = *at;
      const bool lost = network_.dead().contains(process) && !ended_.contains(process);
      at = lost ? member_.erase(at) : std::next(at);
      if (lost) lost_ranks.push_back(rank);
    }
    // Who takes a lost one's place must not find a generation that still has it.
    if (!lost_ranks.empty() && !member_.empty()) tell();
    for (const int rank : lost_ranks)
      if (plan_.respawns && processes_.size() < 8) waiting_[rank] = start(rank, /*is_newcomer=*/true);
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const auto [rank, process] = *at;
      const bool ready = key_value_->check({members::ready_key(rank, getpid())});
      if (ready) {
        key_value_->deleteKey(members::ready_key(rank, getpid()));
        member_[rank] = process;
        ++result_.joined;
        changed = true;
      }
      at = ready || network_.dead().contains(process) ? waiting_.erase(at) : std::next(at);
    }
    if (key_value_->check({members::again_key(number_ - 1)})) changed = true;
    if (changed && !member_.empty()) tell();
    const auto has_ended = [&](const auto& item) { return ended_.contains(item.second); };
    return std::ranges::all_of(member_, has_ended) && (member_.empty() || std::ranges::all_of(waiting_, has_ended));
  }

  comm::Group connect(int process, const comm::Environment& place, const comm::ConnectOptions& options) {
    const int generation = std::stoi(options.name.substr(options.name.find('/') + 1));
    const std::vector<int> all = generations_.at(generation);
    if (all.size() == 1) return comm::local_groups(1, options.timeout)[0];
    try {
      auto transport = network_.join(options.name, all, process, kMeeting);
      return comm::Group(comm::make_transport_backend(std::move(transport), options.timeout, options.asks_around));
    } catch (const comm::TransportFailure& failure) {
      throw comm::CommError(failure.peer, "connect", 0, text("connect as rank ", place.rank, ": ", failure.what()));
    }
  }

  void work(int rank, int process, bool is_newcomer) {
    Scheduler::this_thread()->process = process;
    try {
      comm::Environment place;
      place.rank = rank;
      const auto connect_all = [this, process](const auto&, const auto& now, const auto& wanted) {
        return connect(process, now, wanted);
      };
      comm::Membership membership(
          std::make_shared<comm::Membership::Connection>(comm::Membership::Connection{
              place, {.timeout = kTimeout, .name = "job"}, store_->connect(process), connect_all}),
          is_newcomer);
      if (plan_.own_loop) {
        std::string hash;
        parallel::run_surviving(membership, team_of(plan_), [&](auto& me) { own_loop(me, plan_, hash); },
                                {.copy_every = plan_.copy_every});
        if (network_.dead().contains(process)) return;
        if (!hash.empty()) result_.hash = hash;
        ended_.insert(process);
        return;
      }
      if (is_newcomer) membership.say_ready();
      const train::Outcome outcome =
          train::train_surviving(membership, [&](const comm::Group& group, const std::optional<run::Checkpoint>& copy) {
            return std::make_unique<train::Trainer>(config_of(plan_), task_of(plan_), group, copy);
          });
      if (network_.dead().contains(process)) return;
      if (!outcome.hash.empty()) result_.hash = outcome.hash;
      if (!outcome.is_whole()) result_.complaint = text("process ", process, " was told to stop");
    } catch (const std::exception& error) {
      if (network_.dead().contains(process)) return;
      result_.complaint = text("process ", process, " (rank ", rank, ") failed: ", error.what());
    }
    ended_.insert(process);
  }

  Scheduler& scheduler_;
  const SurvivalPlan& plan_;
  const std::shared_ptr<Store> store_;
  Network network_;
  const c10::intrusive_ptr<c10d::Store> key_value_;
  std::map<int, int> member_, waiting_;  // processes by rank
  std::map<int, std::vector<int>> generations_;
  std::set<int> ended_;
  int number_ = 0;
  SurvivalResult result_;
  std::deque<std::jthread> processes_;
};

}  // namespace

SurvivalPlan survival_plan_of(uint64_t seed) {
  Draws draws(seed ^ 0x5175u);
  SurvivalPlan plan;
  plan.processes = static_cast<int>(draws.between(2, 4));
  plan.respawns = draws.chance(0.4);
  plan.batch_norm = draws.chance(0.3);
  plan.reads_late = draws.chance(0.5);
  plan.copy_every = draws.between(1, 3);
  plan.own_loop = draws.chance(0.3);
  for (int64_t faults = draws.between(1, plan.processes); faults > 0; --faults)
    plan.faults.push_back({Fault::Kind::crash, static_cast<int>(draws.below(plan.processes + (plan.respawns ? 2 : 0))),
                           draws.between(1, 150 * plan.processes), 0});
  plan.parts = draws.chance(0.3);
  return plan;
}

std::string to_text(const SurvivalPlan& plan) {
  std::string out =
      text(plan.processes, " processes, a copy every ", plan.copy_every, " steps", plan.respawns ? ", new ones" : "",
           plan.batch_norm ? ", batch norm" : "", plan.reads_late ? ", late reads" : "");
  if (plan.own_loop) out += ", a loop of its own";
  if (plan.parts) out += ", parts of the network";
  for (const Fault& fault : plan.faults) out += "; " + to_text(fault);
  return out;
}

SurvivalResult survive(uint64_t seed, const SurvivalPlan& plan) {
  Scheduler scheduler(seed);
  Launcher launcher(scheduler, plan);
  SurvivalResult result;
  scheduler.run(text("survival seed ", seed, " (", to_text(plan), ")"), [&] { result = launcher.run(); });
  const Time meetings = kMeeting.count() * kSecond * static_cast<Time>(plan.faults.size());
  if (result.complaint.empty() && result.when > kLongest + meetings)
    result.complaint = text("it took ", static_cast<double>(result.when) / kSecond, " s: somebody waited for nothing");
  return result;
}

std::string undisturbed(const SurvivalPlan& plan) {
  if (plan.own_loop) {
    std::string hash;
    parallel::Team::create(team_of(plan)).run([&](auto& me) { own_loop(me, plan, hash); });
    return hash;
  }
  return train::Trainer(config_of(plan), task_of(plan), comm::Group()).run().hash;
}

}  // namespace lockstep::simulation
