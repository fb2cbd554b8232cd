// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/paced.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"

namespace lockstep::trials {
namespace {

using SteadyClock = std::chrono::steady_clock;

void rest(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Hands on what it is given. Backwards it sleeps; then its weight has a gradient.
struct Pause : torch::autograd::Function<Pause> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double seconds) {
    context->saved_data["seconds"] = seconds;
    context->saved_data["numel"] = weight.numel();
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    rest(context->saved_data["seconds"].toDouble());
    return {gradients[0], at::zeros({context->saved_data["numel"].toInt()}), {}};
  }
};

/// Weights of the sizes that a profile has, whose gradients come when it says.
struct PacedNetworkImpl : torch::nn::Module {
  explicit PacedNetworkImpl(const parallel::StepCost& given) : cost(given) {
    for (size_t g = 0; g < cost.gradients.size(); ++g)
      weights.push_back(register_parameter(text("weight", g), at::zeros({cost.gradients[g].numel})));
  }

  /// Seconds after the backward pass began.
  double arrival(const parallel::GradientCost& gradient) const {
    double seconds = gradient.at;
    for (size_t later = static_cast<size_t>(gradient.stage) + 1; later < cost.stages.size(); ++later)
      seconds += cost.stages[later].backward;
    return seconds;
  }

  at::Tensor forward() {
    double seconds = 0, backward = 0;
    for (const auto& stage : cost.stages) {
      seconds += stage.forward;
      backward += stage.backward;
    }
    rest(seconds);
    // What comes first in the backward pass is applied last in this one.
    at::Tensor x = at::ones({}).requires_grad_();
    double until = backward;
    const auto all = parameters();
    for (size_t g = all.size(); g-- > 0;) {
      const double at = arrival(cost.gradients[g]), before = g > 0 ? arrival(cost.gradients[g - 1]) : 0;
      if (g + 1 == all.size()) x = Pause::apply(x, at::zeros({0}), until - at);
      x = Pause::apply(x, all[g], at - before);
    }
    return x;
  }

  const parallel::StepCost cost;
  std::vector<at::Tensor> weights;
};
TORCH_MODULE(PacedNetwork);

}  // namespace

PacedResult run_paced(const Profile& profile, const comm::Group& group, int64_t steps, parallel::Order order) {
  require(steps > warm_up_steps, "trial", "--steps is ", steps, ", expected more than ", warm_up_steps,
          ", which only warm up");
  const auto team =
      parallel::Team::create({.replicas = group.size(), .devices = "cpu:1", .group = group, .order = order});
  PacedResult result;
  team.run([&](parallel::Replica& me) {
    auto network = me.share(PacedNetwork(profile.cost));
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0});
    int64_t sent = 0;
    auto before = SteadyClock::now();
    for (int64_t step = 0; step < steps; ++step) {
      if (step == warm_up_steps) {
        sent = team.bytes_sent();
        before = SteadyClock::now();
      }
      me.step(network->forward(), optimizer);
      const auto now = SteadyClock::now();
      if (step >= warm_up_steps) result.step_seconds.push_back(std::chrono::duration<double>(now - before).count());
      before = now;
    }
    result.bytes_sent = (team.bytes_sent() - sent) / (steps - warm_up_steps);
  });
  return result;
}

parallel::StepForecast forecast_paced(const Profile& profile, int64_t processes, const parallel::LinkCost& link,
                                      parallel::Order order) {
  parallel::StepCost cost = profile.cost;
  cost.data = 0;
  cost.turn = 0;
  return parallel::forecast_step(cost, {.blocks = Placement::even(processes, processes), .order = order}, {}, link);
}

}  // namespace lockstep::trials
