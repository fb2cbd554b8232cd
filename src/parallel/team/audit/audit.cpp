// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/audit/audit.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <pthread.h>
#include <sched.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/error.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/slices.h"
#include "lockstep/context/draws.h"
#include "lockstep/dense/detail/image_operations.h"
#include "lockstep/norm/detail/after_step.h"
#include "lockstep/numerics/detail/callers_streams.h"
#include "lockstep/numerics/pinned.h"
#include "parallel/team/agreement.h"
#include "parallel/team/divergence.h"

namespace lockstep::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "this host";
}

cpu_set_t allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(getpid(), sizeof allowed, &allowed);
  return allowed;
}

// Those that this process may use and that have not computed it yet.
cpu_set_t fresh_cores(const std::vector<Opinion>& known, const std::string& host) {
  cpu_set_t fresh = allowed_cores();
  for (const Opinion& opinion : known)
    if (opinion.host == host)
      for (const int64_t core : opinion.cores) CPU_CLR(static_cast<int>(core), &fresh);
  return fresh;
}

bool contains(const Interval& block, int64_t replica) {
  return block.begin <= replica && replica < block.end;
}

void note_core(std::vector<int64_t>& cores) {
  const int64_t here = sched_getcpu();
  if (here >= 0 && std::ranges::count(cores, here) == 0) cores.push_back(here);
}

Tensors buffers_of(const TeamState& team, int64_t member) {
  Tensors buffers;
  for (const auto& network : team.networks)
    for (const auto& buffer : network->networks[member]->buffers())
      if (buffer.defined()) buffers.push_back(buffer);
  return buffers;
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().to(at::kCPU).clone());
  return copies;
}

// A device that computes for another replica leaves its own networks as they were.
class OthersBuffers {
 public:
  OthersBuffers(Tensors buffers, const Tensors& others) : buffers_(std::move(buffers)), before_(copies_of(buffers_)) {
    copy(others);
  }
  ~OthersBuffers() { copy(before_); }
  OthersBuffers(const OthersBuffers&) = delete;
  OthersBuffers& operator=(const OthersBuffers&) = delete;

 private:
  void copy(const Tensors& from) const {
    const at::NoGradGuard no_grad;
    for (size_t b = 0; b < buffers_.size() && b < from.size(); ++b) buffers_[b].copy_(from[b]);
  }

  const Tensors buffers_, before_;
};

std::vector<int64_t> hashes_of_gradients(const Tensors& gradients, const std::vector<int64_t>& brought) {
  std::vector<int64_t> hashes;
  for (const auto& gradient : gradients) hashes.push_back(gradient.defined() ? hash_of(gradient) : 0);
  hashes.insert(hashes.end(), brought.begin(), brought.end());
  return hashes;
}

// As the backward pass accumulates: the first is kept, others are added to it.
void accumulate(Tensors& sums, const Tensors& gradients) {
  const at::NoGradGuard no_grad;
  for (size_t p = 0; p < sums.size(); ++p) {
    if (!gradients[p].defined()) continue;
    if (sums[p].defined())
      sums[p] = sums[p] + gradients[p];
    else
      sums[p] = gradients[p].detach();
  }
}

// Collective over the processes: what one of them has, or nothing.
Tensors broadcast_tensors(const TeamState& team, const Tensors& mine, int from) {
  at::Tensor bytes;
  if (team.options.group.rank() == from) {
    const auto pickled = torch::jit::pickle_save(c10::IValue(mine));
    bytes = at::empty({std::ssize(pickled)}, at::kByte);
    std::ranges::copy(pickled, bytes.mutable_data_ptr<uint8_t>());
  }
  bytes = broadcast_bytes(team, bytes, from);
  const auto* first = bytes.const_data_ptr<uint8_t>();
  return torch::jit::pickle_load({first, first + bytes.numel()}).toTensorVector();
}

}  // namespace

/// What a member exchanges with the others, kept while it is audited.
class Audit::RecordingPeers : public Peers {
 public:
  RecordingPeers(TeamState& team, int64_t member) : peers_(team, member) {}
  void record_into(AuditedPass* pass) { pass_ = pass; }

  int64_t replica() const override { return peers_.replica(); }
  int64_t replicas() const override { return peers_.replicas(); }
  at::Tensor all_gather(const at::Tensor& mine) override { return begin_all_gather(mine)(); }
  Gathered begin_all_gather(const at::Tensor& mine) override {
    auto gathered = peers_.begin_all_gather(mine);
    if (pass_ == nullptr) return gathered;
    const size_t number = pass_->brought.size();
    pass_->brought.push_back(hash_of(mine));
    pass_->gathered.emplace_back();
    return [pass = pass_, number, gathered = std::move(gathered)] {
      const auto all = gathered();
      pass->gathered[number] = all.detach().to(at::kCPU).clone();
      return all;
    };
  }
  bool shares_backward() const override { return peers_.shares_backward(); }
  at::Tensor meet(const std::vector<at::Tensor>& /*mine*/, const Joint& /*joint*/) override {
    fail("audit", "replicas share one backward pass in their synchronised batch norms, expected one of each replica's ",
         "own: one replica a process on GPUs, shares_backward unset, other batch norms, or no audit");
  }

 private:
  CrewPeers peers_;
  AuditedPass* pass_ = nullptr;
};

Audit::Audit(TeamState& team) : team_(team), losses_(team.members()) {
  const cpu_set_t allowed = allowed_cores();
  require(team.has_other_processes() || CPU_COUNT(&allowed) > 1, "Team",
          "audit computes gradients again on another core, and this process may use one, expected two or more");
  for (int64_t m = 0; m < team.members(); ++m) peers_.emplace_back(team, m);
}

Audit::~Audit() = default;

Peers& Audit::peers(int64_t member) {
  return peers_[member];
}

bool Audit::is_due(int64_t step) const {
  return (step + 1) % team_.options.audit == 0;
}

int64_t Audit::audited_replica(int64_t step) const {
  const RandomKey key = RandomKey{team_.options.seed, kAuditDraws}.fold(static_cast<uint64_t>(step));
  return static_cast<int64_t>(key.block(0).pair(0) % static_cast<uint64_t>(team_.placement.replicas()));
}

bool Audit::audits(int64_t member, int64_t step) const {
  return is_due(step) && team_.block.begin + member == audited_replica(step);
}

int Audit::process_of(int64_t replica) const {
  int process = 0;
  while (team_.placement.block(process).end <= replica) ++process;
  return process;
}

void Audit::begin_step(int64_t member, int64_t step) {
  if (!audits(member, step)) return;
  pass_ = {.scales = {}, .buffers = copies_of(buffers_of(team_, member)), .gathered = {}, .brought = {}};
  cores_.clear();
  peers_[member].record_into(&pass_);
  if (team_.device.is_cpu()) team_.crew->stay_here(member);
}

void Audit::add_pass(int64_t member, int64_t step, double scale) {
  if (!audits(member, step)) return;
  note_core(cores_);
  pass_.scales.push_back(scale);
}

void Audit::check(int64_t member, const OptimizerState& optimizer, int64_t step) {
  require(losses_[member] != nullptr, "step",
          "the team audits gradients, and nobody has said how to compute them again, expected a call of audit_with()");
  if (!is_due(step)) return;
  peers_[member].record_into(nullptr);
  if (audits(member, step)) {
    note_core(cores_);
    team_.crew->roam(member);
  }
  team_.crew->meet(member, "audit", [&]() -> CrewWork {
    compare(optimizer, step);
    return {};
  });
  const bool here = contains(team_.block, audited_replica(step));
  if (verdict_ && (here ? audits(member, step) : member == 0)) throw AuditError(*verdict_);
}

Opinion Audit::opinion_here(std::vector<int64_t> hashes, std::vector<int64_t> cores) const {
  Opinion opinion{.hashes = std::move(hashes),
                  .cores = {},
                  .host = host_name(),
                  .device = {},
                  .process = team_.options.group.rank()};
  if (team_.device.is_cpu()) {
    opinion.device = cores.size() == 1 ? "core " : "cores ";
    for (const int64_t& core : cores) opinion.device += text(&core == cores.data() ? "" : " and ", core);
    opinion.cores = std::move(cores);
  } else {
    opinion.device = team_.device.str();
  }
  opinion.device += " of " + opinion.host;
  if (team_.has_other_processes()) opinion.device += text(" (process ", opinion.process, ")");
  return opinion;
}

// On a thread of its own: it computes as the audited replica's did, and keeps away from the cores that did.
Opinion Audit::compute_again(int64_t replica, int64_t step, const AuditedPass& pass, const std::vector<Opinion>& known,
                             const OptimizerState& optimizer) {
  const int64_t member = contains(team_.block, replica) ? replica - team_.block.begin : 0;
  Tensors leaves, gradients;
  std::vector<size_t> places;
  for (const OptimizedParameter& parameter : optimizer.parameters()) {
    if (parameter.leaves[member].requires_grad()) {
      leaves.push_back(parameter.leaves[member]);
      places.push_back(gradients.size());
    }
    gradients.emplace_back();
  }
  std::vector<int64_t> cores, brought;
  std::exception_ptr error;
  const auto streams = callers_streams();
  const auto compute = [&] {
    const cpu_set_t fresh = fresh_cores(known, host_name());
    if (team_.device.is_cpu() && CPU_COUNT(&fresh) > 0) pthread_setaffinity_np(pthread_self(), sizeof fresh, &fresh);
    const ReplicaNumerics numerics;
    const OnCallersStreams on(streams, team_.device);
    RecordedPeers peers(pass, replica, team_.placement.replicas());
    Draws draws(team_.draws_of(step, replica));
    const Slices slices(team_.options.slices);
    norm::AfterStep after_step;  // nobody runs it: statistics have moved already
    const ContextScope context({.peers = &peers,
                                .draws = &draws,
                                .images = &dense::image_operations(),
                                .slices = slices.count() > 1 ? &slices : nullptr,
                                .after_step = &after_step});
    const OthersBuffers buffers(buffers_of(team_, member), pass.buffers);
    Tensors sums(leaves.size());
    for (size_t part = 0; part < pass.scales.size(); ++part) {
      const auto loss = losses_[member](replica, static_cast<int64_t>(part));
      note_core(cores);
      if (!loss.defined() || !loss.requires_grad()) continue;
      const auto scale = at::full_like(loss, pass.scales[part], loss.options().requires_grad(false));
      accumulate(sums, torch::autograd::grad({loss}, leaves, {scale}, std::nullopt, false, true));
    }
    note_core(cores);
    for (size_t p = 0; p < places.size(); ++p) gradients[places[p]] = sums[p];
    brought = peers.brought();
  };
  std::thread([&] {
    try {
      compute();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return opinion_here(hashes_of_gradients(gradients, brought), cores);
}

// Collective over the processes. None where this process has no device that has not computed it yet.
std::optional<Opinion> Audit::next_opinion(int process, int64_t replica, int64_t step, const AuditedPass& pass,
                                           const std::vector<Opinion>& known, const OptimizerState& optimizer) {
  const bool mine = process == team_.options.group.rank();
  Opinion opinion;
  if (mine) {
    const auto here = std::ranges::count(known, process, &Opinion::process);
    const cpu_set_t fresh = fresh_cores(known, host_name());
    if (here == 0 || (here < team_.threads && CPU_COUNT(&fresh) > 0))
      opinion = compute_again(replica, step, pass, known, optimizer);
  }
  if (team_.has_other_processes()) opinion = opinion_in(broadcast_tensors(team_, packed(opinion), process), process);
  return opinion.hashes.empty() ? std::nullopt : std::optional(opinion);
}

void Audit::compare(const OptimizerState& optimizer, int64_t step) {
  const int64_t replica = audited_replica(step);
  const int owner = process_of(replica);
  const auto processes = static_cast<int>(team_.placement.processes());
  const bool here = owner == team_.options.group.rank();
  Opinion first;
  if (here) {
    Tensors gradients;
    for (const OptimizedParameter& parameter : optimizer.parameters())
      gradients.push_back(parameter.leaves[replica - team_.block.begin].grad());
    first = opinion_here(hashes_of_gradients(gradients, pass_.brought), cores_);
  }
  AuditedPass pass = pass_;
  if (processes > 1) {
    first = opinion_in(broadcast_tensors(team_, packed(first), owner), owner);
    pass = pass_in(broadcast_tensors(team_, packed(pass), owner));
  }
  std::vector<Opinion> opinions{first};
  // Another process each time; a third one, or another core of the first, where two differ.
  const RandomKey key = RandomKey{team_.options.seed, kAuditDraws}.fold(static_cast<uint64_t>(step));
  const auto after = static_cast<int>(processes > 1 ? 1 + key.block(0).pair(1) % (processes - 1) : 0);
  const int second = (owner + after) % processes;
  const int third = processes > 2 ? (owner + after % (processes - 1) + 1) % processes : owner;
  for (const int process : {second, third}) {
    if (const auto next = next_opinion(process, replica, step, pass, opinions, optimizer)) opinions.push_back(*next);
    if (opinions.size() == 2 && opinions[0].hashes == opinions[1].hashes) return;
  }
  judge(opinions, optimizer, replica, step);
}

void Audit::judge(const std::vector<Opinion>& opinions, const OptimizerState& optimizer, int64_t replica,
                  int64_t step) {
  require(opinions.size() >= 2, "audit", "replica ", replica, " has computed on every core that this process may use, ",
          "expected another one: use more cores, or fewer threads");
  const int odd = opinions.size() == 3 ? odd_one_out(opinions[0], opinions[1], opinions[2]) : -1;
  const Opinion& wrong = opinions[std::max(odd, 0)];
  const Opinion& other = opinions[odd == 1 ? 0 : 1];
  const auto [mine, theirs] = std::ranges::mismatch(wrong.hashes, other.hashes);
  const auto tensor = static_cast<size_t>(mine - wrong.hashes.begin());
  const auto& parameters = optimizer.parameters();
  const std::string what = tensor < parameters.size()
                               ? text("the gradient of ", parameters[tensor].name)
                               : text("exchange ", tensor - parameters.size(), " of synchronised batch norms");
  std::string message = text("audit: in step ", step + 1, " ", what, " of replica ", replica, " ");
  if (odd >= 0)
    message += text("has other bits on ", wrong.device, " than on ", other.device, " and ",
                    opinions[odd == 2 ? 0 : 2].device, ": ", wrong.device, " computes wrongly; leave it out");
  else if (opinions.size() == 3)
    message += text("has other bits on each of ", opinions[0].device, ", ", opinions[1].device, " and ",
                    opinions[2].device, ", expected the same");
  else
    message += text("has other bits on ", wrong.device, " than on ", other.device,
                    ", expected the same; with three devices a vote would say which is wrong");
  if (team_.device.is_cpu()) message += " (lockstep selftest --burn 600 looks for wrong cores)";
  verdict_.emplace(message, odd >= 0 && team_.has_other_processes() ? wrong.process : -1);
  if (!team_.has_other_processes()) return;
  try {  // a process that has failed closes its connections, so all know before one does
    team_.control.barrier().wait();
  } catch (const comm::CommError& error) {
    log_debug(error.what());
  }
}

}  // namespace lockstep::parallel
