// SPDX-License-Identifier: Apache-2.0
// What sums over up to 1,024 processes cost by their messages, in virtual time: the canonical exchange as it is, the
// same sums by slices alone and by slices in groups, a ring and a tree. Nothing is measured; --chart draws it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/forecast.h"
#include "lockstep/report/figure.h"
#include "lockstep/report/format.h"
#include "lockstep/report/table.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

using parallel::LinkCost;
using parallel::Order;

// ResNet-50: 161 tensors with 25.6 million weights, here alike in size, and 54 stages that take turns in the backward
// pass.
constexpr int64_t kWeights = 25'600'000;
constexpr int64_t kTensors = 161, kStages = 54;
constexpr double kLatency = 5e-6;

constexpr std::array<int64_t, 10> kRanks{2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
constexpr std::array<double, 4> kGbits{1, 10, 100, 400};

LinkCost link_of(double gbits, double message) {
  return {.latency = kLatency, .bytes_per_second = gbits * 1e9 / 8, .message = message};
}

/// A network that computes so long in a step on one device, and how one replica a process trains it.
parallel::StepCost network(double seconds) {
  parallel::StepCost cost;
  const double stage = seconds / static_cast<double>(kStages);
  for (int64_t s = 0; s < kStages; ++s) cost.stages.push_back({.forward = stage / 3, .backward = 2 * stage / 3});
  for (int64_t t = 0; t < kTensors; ++t)
    cost.gradients.push_back(
        {.numel = kWeights / kTensors, .stage = kStages - 1 - t * kStages / kTensors, .at = 2 * stage / 3});
  return cost;
}

double rounds_of(int64_t ranks) {
  return std::ceil(std::log2(static_cast<double>(ranks)));
}

/// A binary tree whose messages are cut up so that all levels send at once: up and down.
double by_tree(int64_t ranks, double bytes, const LinkCost& link) {
  return 2 * rounds_of(ranks) * (link.latency + link.message) + 2 * bytes / link.bytes_per_second;
}

/// Slices among groups of so many, and then among the groups: each rank has its slice there.
double by_groups(int64_t ranks, int64_t group, double bytes, const LinkCost& link) {
  const auto slices = [&](int64_t count, double of_bytes) {
    return parallel::all_reduce_seconds(Placement::even(count, count), static_cast<int64_t>(of_bytes) / 4, 4,
                                        Order::canonical, link, false);
  };
  if (ranks <= group) return slices(ranks, bytes);
  return slices(group, bytes) + slices(ranks / group, bytes / static_cast<double>(group));
}

struct Algorithm {
  const char* name;
  double (*seconds)(int64_t ranks, double bytes, const LinkCost& link);
};

constexpr std::array<Algorithm, 5> kAlgorithms{
    {{"slices",
      [](int64_t ranks, double bytes, const LinkCost& link) {
        return parallel::all_reduce_seconds(Placement::even(ranks, ranks), static_cast<int64_t>(bytes) / 4, 4,
                                            Order::canonical, link, false);
      }},
     {"canonical",
      [](int64_t ranks, double bytes, const LinkCost& link) {
        return parallel::all_reduce_seconds(Placement::even(ranks, ranks), static_cast<int64_t>(bytes) / 4, 4,
                                            Order::canonical, link);
      }},
     {"ring",
      [](int64_t ranks, double bytes, const LinkCost& link) {
        return parallel::all_reduce_seconds(Placement::even(ranks, ranks), static_cast<int64_t>(bytes) / 4, 4,
                                            Order::ring, link);
      }},
     {"tree", by_tree},
     {"slices in groups of 32",
      [](int64_t ranks, double bytes, const LinkCost& link) { return by_groups(ranks, 32, bytes, link); }}}};

/// All gradients in buckets of 4 MiB, one behind another.
double of_all_buckets(const Algorithm& algorithm, int64_t ranks, const LinkCost& link) {
  constexpr double kBucket = 4 << 20, kAll = kWeights * 4.0;
  const double whole = std::floor(kAll / kBucket);
  return whole * algorithm.seconds(ranks, kBucket, link) + algorithm.seconds(ranks, kAll - whole * kBucket, link);
}

report::Figure figure_of(double gbits, double message) {
  report::Figure figure{.title = text(static_cast<int>(gbits), " Gbit/s"),
                        .x = {.label = "processes", .log = true},
                        .y = {.label = "seconds", .log = true}};
  int color = 0;
  for (const Algorithm& algorithm : kAlgorithms) {
    report::Series series{.name = algorithm.name, .color = color++};
    for (const int64_t ranks : kRanks) {
      series.x.push_back(static_cast<double>(ranks));
      series.y.push_back(of_all_buckets(algorithm, ranks, link_of(gbits, message)));
    }
    figure.series.push_back(std::move(series));
  }
  return figure;
}

void print_sums(double message, nlohmann::json& results) {
  std::printf("sums of 25.6 million float32 in buckets of 4 MiB, milliseconds; latency 5 us, %s a message\n\n",
              report::duration(message).c_str());
  std::vector<report::Column> columns{{"Gbit/s"}, {"processes"}};
  for (const Algorithm& algorithm : kAlgorithms)
    columns.push_back({algorithm.name, "", [](double value) { return report::fixed(1e3 * value, 1); }});
  report::Table table(columns);
  for (const double gbits : kGbits)
    for (const int64_t ranks : {int64_t{8}, int64_t{64}, int64_t{256}, int64_t{1024}}) {
      std::vector<report::Cell> row{static_cast<int64_t>(gbits), ranks};
      nlohmann::json json{{"gbits", gbits}, {"ranks", ranks}, {"message", message}};
      for (const Algorithm& algorithm : kAlgorithms) {
        const double seconds = of_all_buckets(algorithm, ranks, link_of(gbits, message));
        row.emplace_back(seconds);
        json[algorithm.name] = seconds;
      }
      table.add(std::move(row));
      results.push_back(std::move(json));
    }
  std::printf("%s\n", table.to_text().c_str());
}

/// Steps of a network with 25.6 million weights, a replica a process: what the canonical sums lose beside a ring, which
/// overlap with the backward pass alike.
void print_steps(double message, nlohmann::json& results) {
  std::printf("steps with so much computing in each, 100 Gbit/s, %s a message: how much longer than alone\n\n",
              report::duration(message).c_str());
  const auto percent = [](double part) { return report::fixed(100 * part, 1); };
  report::Table table({{"computing", "ms"}, {"processes"}, {"canonical", "%", percent}, {"ring", "%", percent}});
  for (const double seconds : {0.1, 1.0, 10.0})
    for (const int64_t ranks : {int64_t{8}, int64_t{64}, int64_t{256}, int64_t{1024}}) {
      const auto loss = [&](Order order) {
        const auto step = parallel::forecast_step(
            network(seconds), {.blocks = Placement::even(ranks, ranks), .order = order}, {}, link_of(100, message));
        return step.seconds / seconds - 1;
      };
      const double canonical = loss(Order::canonical), ring = loss(Order::ring);
      table.add({static_cast<int64_t>(std::lround(1e3 * seconds)), ranks, canonical, ring});
      results.push_back(
          {{"computing_seconds", seconds}, {"ranks", ranks}, {"canonical_loss", canonical}, {"ring_loss", ring}});
    }
  std::printf("%s\n", table.to_text().c_str());
}

nlohmann::json run_all(const Arguments& arguments) {
  const double message = 1e-9 * static_cast<double>(arguments.number("--message", 1000));
  nlohmann::json results{{"sums", nlohmann::json::array()}, {"steps", nlohmann::json::array()}};
  print_sums(message, results["sums"]);
  print_steps(message, results["steps"]);
  if (const std::string stem = arguments.text("--chart", ""); !stem.empty()) {
    std::vector<report::Figure> figures;
    for (const double gbits : kGbits) figures.push_back(figure_of(gbits, message));
    report::write_figures(stem, figures, {360, 280});
  }
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "What sums over up to 1,024 processes cost by their messages, in virtual time.",
                      .measure = run_all,
                      .options = {{"--message", "NANOSECONDS", "what a message more takes; default 1000"},
                                  {"--chart", "STEM", "STEM.svg and STEM.png"}}});
}
