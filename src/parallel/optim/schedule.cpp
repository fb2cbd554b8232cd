// SPDX-License-Identifier: Apache-2.0
// Learning rates over time.
#include "lockstep/parallel/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

void check_steps(const char* name, int64_t steps) {
  require(steps >= 1, name, "the number of steps is ", steps, ", expected at least 1");
}

}  // namespace

Schedule constant() {
  return [](int64_t) { return 1.0; };
}

Schedule step_decay(int64_t every, double gamma) {
  check_steps("step_decay", every);
  return [=](int64_t step) {
    const int64_t times = step / every;
    return std::pow(gamma, static_cast<double>(times));
  };
}

Schedule multi_step(std::vector<int64_t> milestones, double gamma) {
  require(std::ranges::is_sorted(milestones), "multi_step", "the milestones are not in ascending order");
  return [milestones = std::move(milestones), gamma](int64_t step) {
    const auto passed = std::ranges::upper_bound(milestones, step) - milestones.begin();
    return std::pow(gamma, static_cast<double>(passed));
  };
}

Schedule cosine(int64_t total, double least) {
  check_steps("cosine", total);
  return [=](int64_t step) {
    const double done = std::min(1.0, static_cast<double>(step) / static_cast<double>(total));
    return least + (1 - least) * (1 + std::cos(std::numbers::pi * done)) / 2;
  };
}

Schedule polynomial(int64_t total, double power, double least) {
  check_steps("polynomial", total);
  return [=](int64_t step) {
    const double left = std::max(0.0, 1 - static_cast<double>(step) / static_cast<double>(total));
    return least + (1 - least) * std::pow(left, power);
  };
}

Schedule warm_up(int64_t steps, Schedule after, double from) {
  check_steps("warm_up", steps);
  require(after != nullptr, "warm_up", "the schedule after it is empty, expected one, such as constant()");
  return [steps, after = std::move(after), from](int64_t step) {
    if (step >= steps) return after(step - steps);
    return from + (1 - from) * static_cast<double>(step) / static_cast<double>(steps);
  };
}

double scale_with(double k, ScaleRule rule) {
  require(k > 0, "scale_with", "the batch grows by ", k, ", expected more than 0");
  return rule == ScaleRule::none ? 1 : rule == ScaleRule::linear ? k : std::sqrt(k);
}

}  // namespace lockstep::parallel
