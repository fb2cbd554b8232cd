// SPDX-License-Identifier: Apache-2.0
// All processes of a placement in virtual time.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "parallel/forecast/exchange_time.h"
#include "parallel/forecast/parts.h"
#include "parallel/forecast/virtual_process.h"

namespace lockstep::parallel {
namespace {

// What a step brings beside gradients and who used which parameter: weight, loss, rules, and what a training counts.
constexpr int64_t kContributed = 14;

/// Processes with the same work are one in virtual time.
struct Group {
  int64_t first = 0;  // process
  int64_t count = 0;
};

std::vector<Group> groups_of(const StepPlacement& placement) {
  std::vector<Group> groups;
  for (int64_t p = 0; p < placement.blocks.processes(); ++p) {
    const auto same = [&](const Group& group) {
      return placement.blocks.block(group.first).size() == placement.blocks.block(p).size();
    };
    const auto known = placement.share ? groups.end() : std::ranges::find_if(groups, same);
    if (known != groups.end())
      ++known->count;
    else
      groups.push_back({p, 1});
  }
  return groups;
}

double of_threads(const std::vector<double>& slowdown, double threads) {
  if (slowdown.empty() || threads <= 1) return slowdown.empty() ? 1 : slowdown[0];
  const double place = std::min(threads - 1, static_cast<double>(slowdown.size() - 1));
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, slowdown.size() - 1);
  return slowdown[below] + (place - std::floor(place)) * (slowdown[above] - slowdown[below]);
}

/// Sums between processes, one behind another, in the same order everywhere.
class Exchanges {
 public:
  Exchanges(VirtualTime& time, std::vector<ExchangeTime> of_step, std::deque<VirtualCores>& cores)
      : time_(time), of_step_(std::move(of_step)), cores_(cores), posted_(of_step_.size(), 0) {}

  void on_all_met(std::function<void()> call) { on_all_met_ = std::move(call); }
  /// A process posts its part of a sum; the last of a step are what it brings beside gradients.
  void post(int64_t number) {
    ++posted_[number];
    start_next();
  }
  void post_contribution() { post(static_cast<int64_t>(of_step_.size()) - 1); }

 private:
  void start_next() {
    if (underway_ || posted_[next_] < static_cast<int64_t>(cores_.size())) return;
    underway_ = true;
    const ExchangeTime& exchange = of_step_[next_];
    waiting_ = static_cast<int64_t>(cores_.size()) + 1;
    time_.at(time_.now() + exchange.link, [this] { end_one(); });
    for (VirtualCores& cores : cores_) cores.run(exchange.compute, CoreUse::memory, 1, [this] { end_one(); });
  }

  void end_one() {
    if (--waiting_ > 0) return;
    underway_ = false;
    if (++next_ < of_step_.size()) return start_next();
    next_ = 0;
    std::ranges::fill(posted_, 0);
    on_all_met_();
  }

  VirtualTime& time_;
  const std::vector<ExchangeTime> of_step_;
  std::deque<VirtualCores>& cores_;
  std::vector<int64_t> posted_;
  std::function<void()> on_all_met_;
  size_t next_ = 0;
  int64_t waiting_ = 0;
  bool underway_ = false;
};

class Simulation {
 public:
  Simulation(const StepCost& cost, const StepPlacement& placement, const Slowdown& slowdown, const LinkCost& link)
      : cost_(cost),
        placement_(placement),
        slowdown_(slowdown),
        groups_(groups_of(placement)),
        parts_(parts_of(cost, placement.devices, placement.split)),
        buckets_(buckets_of(cost, parts_, placement.split.sharers)),
        crosses_(placement.blocks.processes() > 1) {
    plan_exchanges(link);
  }

  StepForecast run() {
    std::deque<VirtualCores> cores;
    const double own = static_cast<double>(placement_.cores > 0 ? placement_.cores : placement_.devices);
    for (size_t g = 0; g < groups_.size(); ++g)
      cores.emplace_back(time_, own, [this](CoreUse use, double threads) {
        return of_threads(use == CoreUse::pass ? slowdown_.passes : slowdown_.memory,
                          threads * static_cast<double>(placement_.host_processes));
      });
    Exchanges exchanges(time_, of_step_, cores);
    std::deque<VirtualProcess> processes;
    for (size_t g = 0; g < groups_.size(); ++g)
      processes.emplace_back(
          time_, work_of(groups_[g]), cores[g], [&](int64_t bucket) { exchanges.post(bucket); },
          [&, g] { crosses_ ? exchanges.post_contribution() : processes[g].update(); });
    exchanges.on_all_met([&] {
      for (VirtualProcess& process : processes) process.update();
    });
    for (VirtualProcess& process : processes) process.begin();
    time_.run();
    return summary(processes);
  }

 private:
  double all_bytes() const {
    double bytes = 0;
    for (const GradientCost& gradient : cost_.gradients)
      bytes += static_cast<double>(gradient.numel * gradient.element_bytes);
    return bytes;
  }

  void plan_exchanges(const LinkCost& link) {
    if (!crosses_) return;
    const double bytes = all_bytes(), add_byte = bytes > 0 ? cost_.sum_row / bytes : 0;
    std::map<std::pair<int64_t, int64_t>, ExchangeTime> known;
    const auto add = [&](int64_t numel, int64_t element_bytes, Order order) {
      const auto [place, is_new] = known.try_emplace({numel, element_bytes});
      if (is_new) place->second = exchange_time(placement_.blocks, numel, element_bytes, order, link, add_byte);
      of_step_.push_back(place->second);
      bytes_sent_ += place->second.bytes;
    };
    for (size_t b = 0; b < buckets_.numel.size(); ++b)
      add(buckets_.numel[b], buckets_.element_bytes[b], placement_.order);
    known.clear();
    add(kContributed + static_cast<int64_t>(cost_.gradients.size()), 8, Order::canonical);
  }

  ProcessWork work_of(const Group& group) const {
    const Interval block = placement_.blocks.block(group.first);
    const auto rows = static_cast<double>(block.size());
    const bool adds = !crosses_ && block.size() > 1;  // a single gradient needs no addition
    ProcessWork work{
        .forward = parts_.forward,
        .backward = parts_.backward,
        .marks = {},
        .post = {},
        .data = cost_.data,
        .turn = cost_.turn,
        .update = cost_.update + (adds ? cost_.sum_row * rows : 0),
        .update_tasks = std::max<int64_t>(1, std::reduce(buckets_.pieces.begin(), buckets_.pieces.end(), int64_t{0})),
        .permits = parts_.devices,
        .sharers = placement_.split.sharers,
        .members = block.size(),
        .steps = placement_.steps,
        .share = {}};
    if (placement_.share)
      work.share = [this, first = block.begin](int64_t step, int64_t member) {
        return placement_.share(step, first + member);
      };
    if (!crosses_) return work;
    work.marks = buckets_.marks;
    const double bytes = all_bytes();
    for (size_t b = 0; b < buckets_.numel.size(); ++b)
      work.post.push_back(cost_.sum_row * rows * static_cast<double>(buckets_.numel[b] * buckets_.element_bytes[b]) /
                          bytes);
    return work;
  }

  StepForecast summary(const std::deque<VirtualProcess>& processes) const {
    StepForecast out{.bytes_sent = bytes_sent_};
    double all = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const auto weight = static_cast<double>(groups_[g].count);
      for (size_t step = 1; step < processes[g].steps().size(); ++step) {
        all += weight;
        add(out, processes[g].steps()[step], weight);
      }
      out.kept_bytes = std::max(out.kept_bytes, kept_bytes(parts_, placement_.blocks.block(groups_[g].first).size()));
    }
    for (double StepForecast::*part :
         {&StepForecast::seconds, &StepForecast::forward, &StepForecast::backward, &StepForecast::update,
          &StepForecast::data, &StepForecast::communication, &StepForecast::bubble, &StepForecast::wait})
      out.*part /= all;
    for (const size_t stage : parts_.first) out.first_stages.push_back(static_cast<int64_t>(stage));
    return out;
  }

  void add(StepForecast& out, const ProcessTimes& times, double weight) const {
    const auto permits = static_cast<double>(std::reduce(parts_.devices.begin(), parts_.devices.end()));
    const double seconds = times.end - times.begin, communication = times.summed - times.last_pass;
    const double update = times.post + times.update / static_cast<double>(placement_.split.sharers);
    const double idle = permits * (times.last_pass - times.begin) - times.forward - times.backward - times.data -
                        times.turn - times.post;
    const double bubble = parts_.first.size() > 1 ? std::max(0.0, idle) / permits : 0;
    const double busy = (times.forward + times.backward + update + times.data) / permits;
    out.seconds += weight * seconds;
    out.forward += weight * times.forward / permits;
    out.backward += weight * times.backward / permits;
    out.update += weight * update / permits;
    out.data += weight * times.data / permits;
    out.communication += weight * communication;
    out.bubble += weight * bubble;
    out.wait += weight * (seconds - busy - communication - bubble);
  }

  const StepCost& cost_;
  const StepPlacement& placement_;
  const Slowdown& slowdown_;
  const std::vector<Group> groups_;
  const PartCosts parts_;
  const BucketCosts buckets_;
  const bool crosses_;
  std::vector<ExchangeTime> of_step_;
  int64_t bytes_sent_ = 0;
  VirtualTime time_;
};

}  // namespace

StepForecast forecast_step(const StepCost& cost, const StepPlacement& placement, const Slowdown& slowdown,
                           const LinkCost& link) {
  require(!cost.stages.empty(), "forecast", "there are no stages, expected one or more");
  require(placement.devices >= 1 && placement.steps >= 2, "forecast", "devices are ", placement.devices, " and steps ",
          placement.steps, ", expected 1 device or more, and 2 steps or more");
  return Simulation(cost, placement, slowdown, link).run();
}

}  // namespace lockstep::parallel
