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

/// Processes with the same work are one in virtual time; where parts of the network are processes, copies are.
struct Group {
  int64_t first = 0;  // process or copy
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
  Exchanges(VirtualTime& time, std::vector<ExchangeTime> of_step, std::vector<VirtualCores*> cores)
      : time_(time), of_step_(std::move(of_step)), cores_(std::move(cores)), posted_(of_step_.size(), 0) {}

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
    for (VirtualCores* cores : cores_) cores->run(exchange.compute, CoreUse::memory, 1, [this] { end_one(); });
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
  const std::vector<VirtualCores*> cores_;
  std::vector<int64_t> posted_;
  std::function<void()> on_all_met_;
  size_t next_ = 0;
  int64_t waiting_ = 0;
  bool underway_ = false;
};

double slowed(const Slowdown& slowdown, CoreUse use, double threads, double processes, double devices) {
  const bool passes = use == CoreUse::pass;
  const auto& apart = passes ? slowdown.passes : slowdown.memory;
  const auto& together = passes ? slowdown.thread_passes : slowdown.thread_memory;
  const double all = of_threads(apart, threads * processes);
  if (together.empty()) return all;
  const double mine = std::min(threads, devices);  // messages are no threads that share memory with replicas
  return all * of_threads(together, mine) / of_threads(apart, mine);
}

class Simulation {
 public:
  Simulation(const StepCost& cost, const StepPlacement& placement, const Slowdown& slowdown, const LinkCost& link)
      : cost_(cost),
        placement_(placement),
        slowdown_(slowdown),
        link_(link),
        groups_(groups_of(placement)),
        crosses_(placement.blocks.processes() > 1) {
    Split inside = placement.split;
    if (placement.parts_are_processes) inside.parts = 1;
    for (ProcessPart& part : process_parts_of(cost, placement.split.parts / inside.parts, 1 / link.bytes_per_second)) {
      PartCosts parts = parts_of(part.cost, placement.devices, inside);
      BucketCosts buckets = buckets_of(part.cost, parts, inside.sharers);
      parts_.push_back({.process = std::move(part), .parts = std::move(parts), .buckets = std::move(buckets)});
      plan_exchanges(parts_.back());
    }
  }

  StepForecast run() {
    const double own = static_cast<double>(placement_.cores > 0 ? placement_.cores : placement_.devices);
    for (size_t p = 0; p < groups_.size() * parts_.size(); ++p)
      cores_.emplace_back(time_, own, [this](CoreUse use, double threads) {
        return slowed(slowdown_, use, threads, static_cast<double>(placement_.host_processes),
                      static_cast<double>(placement_.devices));
      });
    for (size_t part = 0; part < parts_.size(); ++part) {
      std::vector<VirtualCores*> cores;
      for (size_t g = 0; g < groups_.size(); ++g) cores.push_back(&cores_[place(g, part)]);
      exchanges_.emplace_back(time_, parts_[part].of_step, std::move(cores));
      exchanges_.back().on_all_met([this, part] {
        for (size_t g = 0; g < groups_.size(); ++g) end_step(g, part);
      });
    }
    for (size_t g = 0; g < groups_.size(); ++g) add_processes(g);
    for (VirtualProcess& process : processes_) process.begin();
    time_.run();
    return summary();
  }

 private:
  /// What every copy has of a part that is a process; of the whole network where none is.
  struct Part {
    ProcessPart process{};
    PartCosts parts{};  // threads of it
    BucketCosts buckets{};
    std::vector<ExchangeTime> of_step{};
    int64_t bytes_sent = 0;
  };

  size_t place(size_t group, size_t part) const { return group * parts_.size() + part; }
  bool is_line() const { return parts_.size() > 1; }

  void add_processes(size_t g) {
    if (is_line()) {
      std::vector<BorderCosts> borders;
      std::vector<VirtualCores*> cores;
      for (size_t part = 0; part < parts_.size(); ++part) {
        borders.push_back(parts_[part].process.border);
        cores.push_back(&cores_[place(g, part)]);
      }
      const auto count = static_cast<int64_t>(parts_.size());
      const double agreement =
          exchange_time(Placement::even(count, count), kContributed, 8, Order::canonical, link_, 0).link;
      lines_.emplace_back(time_, link_, std::move(borders), std::move(cores), agreement);
    }
    for (size_t part = 0; part < parts_.size(); ++part) {
      processes_.emplace_back(
          time_, work_of(groups_[g], part), cores_[place(g, part)], is_line() ? &lines_[g] : nullptr,
          [this, part](int64_t bucket) { exchanges_[part].post(bucket); },
          [this, g, part] { crosses_ ? exchanges_[part].post_contribution() : end_step(g, part); });
      if (is_line())
        lines_[g].on_agreed(static_cast<int64_t>(part), [this, g, part] { processes_[place(g, part)].update(); });
    }
  }

  // All sums of this part are here.
  void end_step(size_t g, size_t part) { is_line() ? lines_[g].agree() : processes_[place(g, part)].update(); }

  void plan_exchanges(Part& part) const {
    if (!crosses_) return;
    const StepCost& cost = part.process.cost;
    const auto bytes = static_cast<double>(gradient_bytes(cost));
    const double add_byte = bytes > 0 ? cost.sum_row / bytes : 0;
    std::map<std::pair<int64_t, int64_t>, ExchangeTime> known;
    const auto add = [&](int64_t numel, int64_t element_bytes, Order order) {
      const auto [place, is_new] = known.try_emplace({numel, element_bytes});
      if (is_new) place->second = exchange_time(placement_.blocks, numel, element_bytes, order, link_, add_byte);
      part.of_step.push_back(place->second);
      part.bytes_sent += place->second.bytes;
    };
    for (size_t b = 0; b < part.buckets.numel.size(); ++b)
      add(part.buckets.numel[b], part.buckets.element_bytes[b], placement_.order);
    known.clear();
    add(kContributed + static_cast<int64_t>(cost_.gradients.size()), 8, Order::canonical);
  }

  ProcessWork work_of(const Group& group, size_t number) const {
    const Part& part = parts_[number];
    const StepCost& cost = part.process.cost;
    const BucketCosts& buckets = part.buckets;
    const Interval block = placement_.blocks.block(group.first);
    const auto rows = static_cast<double>(block.size());
    const bool adds = !crosses_ && block.size() > 1;  // a single gradient needs no addition
    const int64_t devices = devices_of(part.parts);
    ProcessWork work{
        .forward = part.parts.forward,
        .backward = part.parts.backward,
        .late = late_of(number),
        .marks = {},
        .post = {},
        .data = cost.data,
        .turn = cost.turn + (slowdown_.thread_turn.empty()
                                 ? 0
                                 : of_threads(slowdown_.thread_turn, static_cast<double>(placement_.devices))),
        .update = cost.update + (adds ? cost.sum_row * rows : 0),
        .update_tasks = std::max<int64_t>(1, std::reduce(buckets.pieces.begin(), buckets.pieces.end(), int64_t{0})),
        .permits = part.parts.devices,
        .part = static_cast<int64_t>(number),
        .ahead = devices * static_cast<int64_t>(parts_.size() - 1 - number),
        .behind = devices * static_cast<int64_t>(number),
        .sharers = placement_.split.sharers,
        .members = block.size(),
        .steps = placement_.steps,
        .share = {}};
    if (placement_.share)
      work.share = [this, first = block.begin](int64_t step, int64_t member) {
        return placement_.share(step, first + member);
      };
    if (!crosses_) return work;
    work.marks = buckets.marks;
    for (size_t p = 0; p < work.marks.size(); ++p)  // gradients of weights that are put off come at the end
      for (auto& mark : work.marks[p])
        if (!work.late[p].empty()) {
          const double late = std::reduce(work.late[p].begin(), work.late[p].end()), all = work.backward[p];
          mark.first = all - late + mark.first * late / all;
        }
    const auto bytes = static_cast<double>(gradient_bytes(cost));
    for (size_t b = 0; b < buckets.numel.size(); ++b)
      work.post.push_back(cost.sum_row * rows * static_cast<double>(buckets.numel[b] * buckets.element_bytes[b]) /
                          bytes);
    return work;
  }

  // Of each part here. Nothing is put off in the first part of all, behind which nobody waits.
  std::vector<std::vector<double>> late_of(size_t number) const {
    auto late = parts_[number].parts.late;
    if (number == 0) late[0].clear();
    return late;
  }

  static int64_t devices_of(const PartCosts& parts) {
    return std::reduce(parts.devices.begin(), parts.devices.end(), int64_t{0});
  }

  StepForecast summary() const {
    StepForecast out;
    double all = 0, longest_forward = 0, longest_backward = 0;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const double all_before = all, forward_before = out.forward, backward_before = out.backward;
      for (size_t g = 0; g < groups_.size(); ++g) {
        const auto weight = static_cast<double>(groups_[g].count);
        const auto& steps = processes_[place(g, part)].steps();
        for (size_t step = 1; step < steps.size(); ++step) {
          all += weight;
          add(out, parts_[part].parts, steps[step], last_pass(g, step), weight);
        }
        note_needs(out, g, part);
      }
      longest_forward = std::max(longest_forward, (out.forward - forward_before) / (all - all_before));
      longest_backward = std::max(longest_backward, (out.backward - backward_before) / (all - all_before));
    }
    for (double StepForecast::*part :
         {&StepForecast::seconds, &StepForecast::forward, &StepForecast::backward, &StepForecast::update,
          &StepForecast::data, &StepForecast::communication, &StepForecast::bubble, &StepForecast::wait})
      out.*part /= all;
    out.longest_forward = longest_forward;
    out.longest_backward = longest_backward;
    if (is_line())
      for (const Part& part : parts_) out.first_stages.push_back(static_cast<int64_t>(part.process.first));
    else
      for (const size_t stage : parts_[0].parts.first) out.first_stages.push_back(static_cast<int64_t>(stage));
    return out;
  }

  // Memory and bytes of the process that needs most of either.
  void note_needs(StepForecast& out, size_t g, size_t number) const {
    const Part& part = parts_[number];
    const int64_t replicas = placement_.blocks.block(groups_[g].first).size();
    const size_t others = parts_.size() - 1 - (late_of(number)[0].empty() ? number : 0);
    const int64_t ahead = devices_of(part.parts) * static_cast<int64_t>(others);
    const int64_t kept = kept_bytes(part.parts, replicas, ahead), gradients = gradient_bytes(part.process.cost);
    if (kept + replicas * gradients > out.kept_bytes + replicas * out.gradient_bytes) {
      out.kept_bytes = kept;
      out.pass_bytes = std::reduce(part.parts.kept_bytes.begin(), part.parts.kept_bytes.end(), int64_t{0});
      out.gradient_bytes = gradients;
    }
    const int64_t on_line = is_line() ? lines_[g].bytes_sent(static_cast<int64_t>(number)) / placement_.steps : 0;
    out.bytes_sent = std::max(out.bytes_sent, part.bytes_sent + on_line);
  }

  // Parts that are processes end their passes together: the last ones wait for the first.
  double last_pass(size_t g, size_t step) const {
    double last = 0;
    for (size_t part = 0; part < parts_.size(); ++part)
      last = std::max(last, processes_[place(g, part)].steps()[step].last_pass);
    return last;
  }

  void add(StepForecast& out, const PartCosts& parts, const ProcessTimes& times, double last_pass,
           double weight) const {
    const auto permits = static_cast<double>(devices_of(parts));
    const double seconds = times.end - times.begin, communication = std::max(0.0, times.summed - last_pass);
    const double update = times.post + times.update / static_cast<double>(placement_.split.sharers);
    const double idle =
        permits * (last_pass - times.begin) - times.forward - times.backward - times.data - times.turn - times.post;
    const double bubble = placement_.split.parts > 1 ? std::max(0.0, idle) / permits : 0;
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
  const LinkCost& link_;
  const std::vector<Group> groups_;
  const bool crosses_;
  std::vector<Part> parts_;
  VirtualTime time_;
  // [group][part], in one row; exchanges are of a part, lines of a group.
  std::deque<VirtualCores> cores_;
  std::deque<Exchanges> exchanges_;
  std::deque<VirtualLine> lines_;
  std::deque<VirtualProcess> processes_;
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
