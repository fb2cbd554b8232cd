// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/parallel/choose_split.h"
#include "lockstep/report/format.h"
#include "trials/forecast/interval.h"
#include "trials/forecast/measurements.h"
#include "trials/forecast/placements.h"

namespace lockstep::trials {
namespace {

constexpr int64_t kComingSteps = 16;  // of clouds, that are looked at

/// Shares of the coming steps, in times the usual one: empty where all are.
using ShareTable = std::vector<std::vector<double>>;

bool is_even(const ForecastRow& row) {
  return row.batch % row.replicas == 0;
}

/// Of the network: a process each, or several processes that hold a part each.
int64_t copies_of(const ForecastRow& row, const parallel::Split& split) {
  return parallel::parts_are_processes(split, row.processes, row.threads) ? row.processes / split.parts : row.processes;
}

ShareTable even_shares(const ForecastRow& row) {
  ShareTable table(1);
  const Placement examples = Placement::even(row.batch, row.replicas);
  for (int64_t r = 0; r < row.replicas; ++r)
    table[0].push_back(static_cast<double>(examples.block(r).size() * row.replicas) / static_cast<double>(row.batch));
  return table;
}

class Forecaster {
 public:
  Forecaster(const ForecastOptions& options, const Profile& profile, const parallel::LinkCost& link)
      : options_(options), profile_(profile), link_(link) {}

  /// What clouds of the coming steps weigh, for each batch and number of replicas.
  void look_up_shares(const std::vector<ForecastRow>& rows) {
    std::set<std::pair<int64_t, int64_t>> batches{{profile_.batch, profile_.replicas}};
    for (const ForecastRow& row : rows) batches.emplace(row.batch, row.replicas);
    const std::vector<std::pair<int64_t, int64_t>> asked(batches.begin(), batches.end());
    const auto all = profile_.clouds ? find_shares(options_.config, asked, kComingSteps) : std::vector<Shares>{};
    double usual = 0;
    for (size_t b = 0; b < all.size(); ++b)
      if (asked[b] == std::pair(profile_.batch, profile_.replicas)) usual = mean_of(all[b]);
    for (size_t b = 0; b < all.size(); ++b) shares_[asked[b]] = in_usual_shares(all[b], usual);
  }

  parallel::StepForecast step_of(const ForecastRow& row, const std::string& split,
                                 const parallel::LinkCost& link) const {
    const parallel::Split read = parallel::parse_split(split);
    const int64_t copies = copies_of(row, read);
    parallel::StepPlacement placement{.blocks = Placement::even(row.replicas, copies),
                                      .devices = row.threads,
                                      .split = read,
                                      .parts_are_processes = copies < row.processes,
                                      .order = comm::parse_order(options_.config.reduce)};
    if (is_one_host()) {  // all processes are of this machine
      placement.host_processes = row.processes;
      placement.cores = std::max<int64_t>(1, profile_.cores / row.processes);
    }
    const ShareTable table = table_of(row);
    if (!table.empty()) {
      placement.share = [&table](int64_t step, int64_t replica) {
        return table[static_cast<size_t>(step) % table.size()][static_cast<size_t>(replica)];
      };
      placement.steps = std::max<int64_t>(3, static_cast<int64_t>(table.size()) + 1);
    }
    auto step = parallel::forecast_step(profile_.cost, placement, profile_.slowdown, link);
    // Steps differ a little from one to the next, on each process by chance, and the sums wait for the slowest.
    if (copies > 1) {
      const double waited = profile_.jitter * slowest_of(copies) * (step.forward + step.backward + step.data);
      step.communication += waited;
      step.seconds += waited;
    }
    return step;
  }

  void fill(ForecastRow& row) const {
    if (row.split == "auto") choose(row);
    row.step = step_of(row, row.split, link_);
    row.memory_mib = memory_of(row);
    add_notes(row);
    const double deviation = deviation_of(row, profile_, options_.link == "measure");
    row.low = row.step.seconds * std::exp(-kEightyPercent * deviation);
    row.high = row.step.seconds * std::exp(kEightyPercent * deviation);
    row.training_seconds = static_cast<double>(updates_of(row)) * row.step.seconds;
  }

  /// The rate at which a step takes no more than `seconds`; infinite where no link does it.
  double break_even(const ForecastRow& row, double seconds) const {
    const auto time_at = [&](double rate) {
      parallel::LinkCost link = link_;
      link.bytes_per_second = rate;
      return step_of(row, row.split, link).seconds;
    };
    double low = 1e3, high = 1e14;  // bytes a second
    if (time_at(high) > seconds) return std::numeric_limits<double>::infinity();
    for (int halving = 0; halving < 30; ++halving) {
      const double middle = std::sqrt(low * high);
      (time_at(middle) > seconds ? low : high) = middle;
    }
    return high;
  }

 private:
  bool is_one_host() const { return options_.link == "measure"; }

  static double mean_of(const Shares& shares) {
    double sum = 0, count = 0;
    for (const auto& step : shares) {
      sum += static_cast<double>(std::reduce(step.begin(), step.end(), int64_t{0}));
      count += static_cast<double>(step.size());
    }
    return sum / count;
  }

  ShareTable in_usual_shares(const Shares& shares, double usual) const {
    ShareTable table;
    for (const auto& step : shares) {
      table.emplace_back();
      for (const int64_t cost : step)
        table.back().push_back(profile_.fixed_part + (1 - profile_.fixed_part) * static_cast<double>(cost) / usual);
    }
    return table;
  }

  ShareTable table_of(const ForecastRow& row) const {
    if (const auto found = shares_.find({row.batch, row.replicas}); found != shares_.end()) return found->second;
    return is_even(row) ? ShareTable{} : even_shares(row);
  }

  void choose(ForecastRow& row) const {
    row.chosen = true;
    double least = std::numeric_limits<double>::infinity();
    const parallel::SplitQuestion question{.processes = row.processes,
                                           .devices = row.threads,
                                           .slices = options_.config.slices,
                                           .may_be_processes = !profile_.clouds};
    const auto stages = static_cast<int64_t>(profile_.cost.stages.size());
    for (const parallel::Split& one : parallel::possible_splits(question, stages)) {
      const std::string split = parallel::to_string(one);
      const double seconds = step_of(row, split, link_).seconds;
      if (seconds >= least) continue;
      least = seconds;
      row.split = split;
    }
  }

  // One device has gradients of all replicas; a process has those of its own, and the nodes that it brings.
  double memory_of(const ForecastRow& row) const {
    int64_t gradients = 0, kept = 0;
    for (const auto& one : profile_.cost.gradients) gradients += one.numel * one.element_bytes;
    for (const auto& stage : profile_.cost.stages) kept += stage.kept_bytes;
    const int64_t copies = copies_of(row, parallel::parse_split(row.split));
    const int64_t here = Placement::even(row.replicas, copies).block(0).size();
    const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / kMebibyte; };
    // What a replica leaves in the heap, beside its gradients, is where its activations were.
    const double holes = std::max(0.0, profile_.replica_mib - mebibytes(gradients));
    const double mine = kept > 0 ? mebibytes(row.step.pass_bytes) / mebibytes(kept) : 1;
    const double replica = mebibytes(row.step.gradient_bytes) + holes * mine;
    const double nodes = copies > 1 ? mebibytes(row.step.gradient_bytes) : 0;
    return profile_.peak_mib + static_cast<double>(here) * replica -
           static_cast<double>(profile_.replicas) * profile_.replica_mib + nodes +
           mebibytes(row.step.kept_bytes - kept);
  }

  void add_notes(ForecastRow& row) const {
    const parallel::Split split = parallel::parse_split(row.split);
    const int64_t copies = copies_of(row, split), parts = copies < row.processes ? 1 : split.parts;
    const int64_t wanted = copies * (row.threads / (split.sharers * parts));
    if (wanted > row.replicas)
      row.notes.push_back(text(wanted - row.replicas, " of ", row.devices, " devices have no replica"));
    if (row.threads * (is_one_host() ? row.processes : 1) > profile_.cores)
      row.notes.push_back(text("more threads a host than the ", profile_.cores, " cores that were measured"));
    if (row.processes > 1 && !is_one_host() && !profile_.loopback)
      row.notes.push_back("what messages cost a processor was not measured");
  }

  int64_t updates_of(const ForecastRow& row) const {
    const run::Config& config = options_.config;
    const int64_t batches =
        config.tail == "drop_last" ? profile_.examples / row.batch : (profile_.examples + row.batch - 1) / row.batch;
    const int64_t updates = config.epochs * ((batches + config.accumulate - 1) / config.accumulate);
    if (config.steps > 0) return config.epochs > 0 ? std::min(updates, config.steps) : config.steps;
    return updates;
  }

  const ForecastOptions& options_;
  const Profile& profile_;
  const parallel::LinkCost link_;
  std::map<std::pair<int64_t, int64_t>, ShareTable> shares_;
};

void check_profile(const ForecastOptions& options, const Profile& profile) {
  const run::Config& config = options.config;
  require(profile.model == config.model && profile.data == config.data, "forecast", "the profile is of ", profile.model,
          " on ", profile.data, ", expected one of ", config.model, " on ", config.data);
  require(profile.batch == config.batch && profile.replicas == config.replicas, "forecast", "the profile has ",
          profile.replicas, " replicas of a batch of ", profile.batch, ", expected ", config.replicas, " of ",
          config.batch, ": shares of another size take other times");
}

// In examples a second; the best placement finishes the training first.
void compare(std::vector<ForecastRow>& rows, const Profile& profile) {
  const double pace = static_cast<double>(profile.batch) / profile.seconds;
  for (ForecastRow& row : rows) {
    row.speedup = static_cast<double>(row.batch) / row.step.seconds / pace;
    row.ideal = static_cast<double>(row.devices);
  }
  std::ranges::max_element(rows, {}, &ForecastRow::speedup)->best = true;
}

}  // namespace

ForecastResult forecast(const ForecastOptions& given, const Profile& profile) {
  const ForecastOptions options = with_defaults(given);
  check_profile(options, profile);
  const Hosts hosts = hosts_of(options, profile.cores);
  ForecastResult result{
      .profile = profile, .link = parse_link(options.link, profile.loopback), .rows = placements_of(options, hosts)};
  Forecaster forecaster(options, profile, result.link);
  forecaster.look_up_shares(result.rows);
  for (ForecastRow& row : result.rows) forecaster.fill(row);
  compare(result.rows, profile);
  double pace = static_cast<double>(profile.batch) / profile.seconds;
  for (const ForecastRow& row : result.rows)
    if (row.processes == 1) pace = std::max(pace, static_cast<double>(row.batch) / row.step.seconds);
  for (ForecastRow& row : result.rows)
    if (row.processes > 1) row.break_even = forecaster.break_even(row, static_cast<double>(row.batch) / pace);
  return result;
}

ForecastRow forecast_of(const run::Config& config, int64_t processes, int64_t threads, const Profile& profile) {
  ForecastOptions options{.config = config,
                          .devices = {processes * threads},
                          .hosts = text(processes, "x", threads),
                          .splits = {config.split}};
  require(processes == 1 || profile.loopback, "forecast",
          "the profile has no link between processes, expected one measured with --hosts ", processes, "x", threads);
  return forecast(options, profile).rows.at(0);
}

run::Phases phases_of(const parallel::StepForecast& step) {
  run::Phases out{.data = step.data,
                  .forward = step.longest_forward,
                  .backward = step.longest_backward,
                  .communication = step.communication,
                  .update = step.update};
  out.wait = std::max(0.0, step.seconds - out.sum());
  return out;
}

std::string verdict(double forecast, double low, double high, double was) {
  const auto ms = [](double seconds) { return report::fixed(1e3 * seconds, 1); };
  const double off = 100 * (was / forecast - 1);
  return text("forecast ", ms(forecast), " ms [", ms(low), ", ", ms(high), "], was ", ms(was), ", ", off < 0 ? "" : "+",
              report::fixed(off, 1), " %");
}

}  // namespace lockstep::trials
