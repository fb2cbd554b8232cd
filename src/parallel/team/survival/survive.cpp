// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/survive.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/archive/detail/tensor_archive.h"
#include "lockstep/archive/tensor_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/connect.h"
#include "lockstep/numerics/detail/flat.h"
#include "lockstep/parallel/detail/surviving_work.h"
#include "lockstep/parallel/replica_error.h"
#include "parallel/team/replica_state.h"
#include "parallel/team/survival/kept_state.h"

namespace lockstep::parallel {
namespace {

// Which one this is of those that replicas share.
std::string key(const char* what, size_t number, const std::string& name) {
  return text(what, '/', number, '/', name);
}

// Replicas' own numbers as one row.
at::Tensor row_of(const std::vector<at::Tensor>& own) {
  std::vector<at::Tensor> flat{at::zeros({1}, at::kDouble)};  // the first number says whether others are to take part
  for (const at::Tensor& tensor : own) flat.push_back(tensor.detach().to(at::kCPU, at::kDouble).flatten());
  return at::cat(flat);
}

bool is_regrouping(const ReplicaError& error) {
  try {
    std::rethrow_exception(error.cause());
  } catch (const Regrouping&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

class SurvivingTeam final : public SurvivingWork {
 public:
  SurvivingTeam(comm::Membership& membership, const TeamOptions& options, const std::function<void(Replica&)>& body,
                int64_t every)
      : membership_(membership), options_(options), body_(body), every_(every) {}

 private:
  int64_t copied_steps() const override { return newest_ ? newest_->steps : -1; }

  std::string copy_as_bytes() const override {
    archive::Value::Dict out{{"steps", {newest_->steps}}};
    for (const auto& [name, tensor] : newest_->tensors) out.push_back({name, {tensor}});
    std::string all;
    archive::write_archive([&](std::string_view bytes) { all += bytes; }, {out});
    return all;
  }

  void take_copy(const std::string& bytes, const std::string& from) override {
    newest_.emplace();
    const auto value = archive::read_tensor_file(std::as_bytes(std::span(bytes)), from);
    for (const auto& [name, item] : value.as<archive::Value::Dict>(from))
      if (name == "steps")
        newest_->steps = item.as<int64_t>(name);
      else
        newest_->tensors[name] = item.as<at::Tensor>(name);
  }

  int64_t steps_done() const override { return done_; }

  void prepare(const comm::Group& group) override {
    require(
        membership_.enough(), "run_surviving", group.size(),
        " processes are left, fewer than --least of lockstep run, expected as many: start again when there are more");
    options_.group = group;
    team_.emplace(Team::create(options_));
  }

  void say(const std::string& event) override {
    if (team_->group().rank() == 0) log_warning(event);
  }

  bool work() override {
    Keeping keeping(membership_, newest_, every_);
    try {
      team_->run([&](Replica& me) {
        me.state_->keeping = &keeping;
        const auto note = [&] {
          if (me.state_->member == 0) done_ = std::max(done_, me.steps());
        };
        try {
          body_(me);
        } catch (...) {
          note();
          throw;
        }
        note();
      });
      return true;
    } catch (const ReplicaError& error) {
      if (is_regrouping(error)) return false;
      throw;
    }
  }

  void end() override {
    team_.reset();
    options_.group = {};
  }

  comm::Membership& membership_;
  TeamOptions options_;
  const std::function<void(Replica&)>& body_;
  const int64_t every_;
  std::optional<KeptState> newest_;
  std::optional<Team> team_;
  int64_t done_ = 0;
};

void Replica::keep(const Optimizer& optimizer, const std::vector<at::Tensor>& own) {
  keep(std::vector<const Optimizer*>{&optimizer}, own);
}

void Replica::keep(const std::vector<const Optimizer*>& optimizers, const std::vector<at::Tensor>& own) {
  Keeping* const keeping = state_->keeping;
  if (keeping == nullptr) return;
  const bool is_first = !std::exchange(state_->keeps, true);
  if (is_first && keeping->goes_on) return put_back(optimizers, own);
  if (is_first || state_->steps % keeping->every == 0) copy(optimizers, own);
}

void Replica::put_back(const std::vector<const Optimizer*>& optimizers, const std::vector<at::Tensor>& own) {
  const at::NoGradGuard no_grad;
  const KeptState& kept = *state_->keeping->newest;
  const bool is_first_here = state_->member == 0;
  const auto give = [&](const std::string& name, const at::Tensor& tensor, std::optional<int64_t> row) {
    const auto found = kept.tensors.find(name);
    if (found == kept.tensors.end()) return false;
    const at::Tensor value = row ? found->second[*row] : found->second;
    require(value.sizes() == tensor.sizes(), "keep", "'", name, "' has sizes ", tensor.sizes(), ", expected ",
            value.sizes(), " as in the copy");
    at::Tensor(tensor).copy_(value);
    return true;
  };
  const auto& networks = state_->team->networks;
  for (size_t n = 0; n < networks.size(); ++n) {
    const auto& network = *networks[n]->networks[state_->member];
    for (const auto& buffer : network.named_buffers())
      if (buffer.value().defined() && !give(key("differs", n, buffer.key()), buffer.value(), number()))
        give(key("network", n, buffer.key()), buffer.value(), std::nullopt);
    for (const auto& parameter : network.named_parameters())  // of all replicas here
      if (is_first_here && parameter.value().defined())
        give(key("network", n, parameter.key()), parameter.value(), std::nullopt);
  }
  for (size_t o = 0; is_first_here && o < optimizers.size(); ++o) {
    const std::string prefix = key("optimizer", o, "");
    std::map<std::string, at::Tensor> mine;
    for (auto at = kept.tensors.lower_bound(prefix); at != kept.tensors.end() && at->first.starts_with(prefix); ++at)
      mine.emplace(at->first.substr(prefix.size()), at->second);
    optimizers[o]->load_state_dict(mine);
  }
  const at::Tensor row = kept.tensors.at("own")[number()];
  require(row.numel() == row_of(own).numel(), "keep", "there are ", row_of(own).numel() - 1,
          " numbers of one's own, expected the ", row.numel() - 1, " of the copy");
  int64_t at = 1;
  for (const at::Tensor& tensor : own) {
    tensor.copy_(row.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
  set_steps(kept.steps);
  barrier();
}

void Replica::copy(const std::vector<const Optimizer*>& optimizers, const std::vector<at::Tensor>& own) {
  Keeping& keeping = *state_->keeping;
  const bool is_first_here = state_->member == 0;
  KeptState now{.steps = state_->steps, .tensors = {}};
  const auto add = [&](const char* what, size_t number, const std::map<std::string, at::Tensor>& tensors) {
    for (const auto& [name, tensor] : tensors) now.tensors[key(what, number, name)] = tensor;
  };
  const auto& networks = state_->team->networks;
  for (size_t n = 0; n < networks.size(); ++n) {
    const auto& network = *networks[n]->networks[state_->member];
    add("differs", n, differing_buffers(network, is_first_here));
    auto weights = state_dict(network, is_first_here);  // not all are copies, as the others are
    for (auto& [name, tensor] : weights) tensor = kept_copy(tensor);
    add("network", n, weights);
  }
  for (size_t o = 0; o < optimizers.size(); ++o) add("optimizer", o, state_dict(*optimizers[o], is_first_here));
  at::Tensor mine = row_of(own);
  if (number() == 0 && keeping.has_changed()) mine[0] = 1;
  const at::Tensor rows = all_gather(mine);
  const bool regroups = rows.select(1, 0).sum().item<double>() > 0;
  if (is_first_here) {
    now.tensors["own"] = rows.clone();
    keeping.newest = std::move(now);
  }
  if (regroups) throw Regrouping{};
}

void run_surviving(comm::Membership& membership, const TeamOptions& options, const std::function<void(Replica&)>& body,
                   const SurviveOptions& survive) {
  require(survive.copy_every >= 1, "run_surviving", "copy_every is ", survive.copy_every, ", expected 1 or more steps");
  require(options.group.size() == 1 && options.blocks.empty(), "run_surviving",
          "the options have a group or blocks, expected none: who takes part changes");
  if (membership.is_newcomer()) membership.say_ready();
  SurvivingTeam(membership, options, body, survive.copy_every).run(membership);
}

void run_surviving(const TeamOptions& options, const std::function<void(Replica&)>& body,
                   const SurviveOptions& survive) {
  if (auto membership = comm::Membership::of_this_job()) return run_surviving(*membership, options, body, survive);
  TeamOptions of_job = options;
  of_job.group = comm::connect();
  Team::create(of_job).run(body);
  of_job.group.finish();
}

}  // namespace lockstep::parallel
