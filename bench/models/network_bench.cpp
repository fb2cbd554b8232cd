// SPDX-License-Identifier: Apache-2.0
// MinkUNet34C on rooms, forward and backward: time of a step on one thread with coordinate and kernel maps at hand
// ("warm") and made in the step ("cold"), the arithmetic of its convolutions as a share of this machine's matrix
// product, the same in bfloat16, where the rest of the time goes, memory; and two replicas with a room each on two
// threads against one.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/base/error.h"
#include "lockstep/models/clouds/minkunet.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/autocast.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "models/operation_times.h"
#include "support/interleave.h"
#include "support/peer.h"
#include "support/program.h"
#include "support/rooms.h"
#include "support/sgemm.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;
using sparse::SparseTensor;

constexpr int64_t kClasses = 20;

struct Room {
  Room(int64_t voxels, uint64_t seed)
      : coordinates(make_room(voxels, seed, true)),
        features(at::randn({coordinates.size(0), 3})),
        labels(at::randint(kClasses, {coordinates.size(0)}, at::kLong)) {}

  SparseTensor cloud() const { return {features, coordinates}; }

  at::Tensor coordinates, features, labels;
};

models::MinkUNet make_network() {
  return models::MinkUNet(models::MinkUNetOptions::variant("34C", 3, kClasses));
}

enum class Precision { float32, bfloat16 };

void step(models::MinkUNet& network, const SparseTensor& x, const at::Tensor& labels,
          Precision precision = Precision::float32) {
  network->zero_grad();
  at::Tensor loss;
  {
    std::optional<parallel::Autocast> low;
    if (precision == Precision::bfloat16) low.emplace(c10::DeviceType::CPU, at::kBFloat16);
    loss = at::cross_entropy_loss(network->forward(x).features(), labels);
  }
  loss.backward();
}

double seconds_of(models::MinkUNet& network, const SparseTensor& x, const at::Tensor& labels,
                  Precision precision = Precision::float32) {
  const double start = work_seconds();
  step(network, x, labels, precision);
  return work_seconds() - start;
}

void print_parts(const char* precision, const std::map<std::string, double>& seconds, double whole) {
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [name, time] : seconds) parts.emplace_back(time, name);
  std::ranges::sort(parts, std::greater<>());
  std::printf("    of a warm step in %s:", precision);
  double rest = whole;
  for (size_t i = 0; i < std::min<size_t>(8, parts.size()); rest -= parts[i++].first)
    std::printf(" %s %.1f %%,", parts[i].second.c_str(), 100 * parts[i].first / whole);
  std::printf(" all else %.1f %%\n", 100 * rest / whole);
}

Json measure_room(int64_t voxels, int rounds) {
  const Room room(voxels, 1);
  auto network = make_network();
  const SparseTensor warm = room.cloud();
  step(network, warm, room.labels);
  double work = 0;
  Json parts;
  {
    const OperationTimes times;
    const double whole = seconds_of(network, warm, room.labels);
    work = times.convolution_work() * 1e-9;
    print_parts("float32", times.seconds(), whole);
    parts = times.seconds();
  }
  {
    step(network, warm, room.labels, Precision::bfloat16);
    const OperationTimes times;
    const double whole = seconds_of(network, warm, room.labels, Precision::bfloat16);
    print_parts("bfloat16", times.seconds(), whole);
  }
  const auto seconds =
      interleave(rounds, {[&] { return seconds_of(network, warm, room.labels); },
                          [&] {
                            const double start = work_seconds();
                            step(network, room.cloud(), room.labels);
                            return work_seconds() - start;
                          },
                          [&] { return sgemm_peak(); },
                          [&] { return seconds_of(network, warm, room.labels, Precision::bfloat16); }});
  const double hot = median(seconds[0]), cold = median(seconds[1]), peak = median(seconds[2]);
  std::printf(
      "  %6ld voxels: warm %7.1f ms, %6.1f GFLOP/s, %4.1f %% of sgemm (%.0f); cold %7.1f ms, %6.1f GFLOP/s; maps are "
      "%.1f %% of a cold step\n",
      static_cast<long>(room.coordinates.size(0)), 1e3 * hot, work / hot, 100 * work / hot / peak, peak, 1e3 * cold,
      work / cold, 100 * (cold - hot) / cold);
  std::printf("                 in bfloat16 (%s): warm %7.1f ms, x%.2f of float32's speed\n", to_string(cpu_level()),
              1e3 * median(seconds[3]), ratio(seconds[0], seconds[3]));
  std::fflush(stdout);
  return {{"voxels", room.coordinates.size(0)},
          {"gflop", work},
          {"warm_seconds", hot},
          {"cold_seconds", cold},
          {"sgemm", peak},
          {"bfloat16_seconds", median(seconds[3])},
          {"operations", parts}};
}

// Does nothing but steps on one room, so many for each number read.
void serve_alone(int64_t voxels, bool tuned, Precision precision) {
  if (tuned) tune_allocator();
  const Room room(voxels, 1);
  auto network = make_network();
  for (int steps; std::cin >> steps;) {
    const double start = work_seconds();
    for (int i = 0; i < steps; ++i) step(network, room.cloud(), room.labels, precision);
    std::cout << (work_seconds() - start) / steps << "\n" << std::flush;
  }
}

// The most memory that such a process holds.
double peak_mib(int64_t voxels, bool tuned, Precision precision = Precision::float32) {
  Peer alone({text(serve_command(), "alone ", voxels, tuned ? " tuned" : " plain",
                   precision == Precision::bfloat16 ? " bfloat16" : "")});
  alone.run(3);
  return alone.peak_mib();
}

// Two replicas with a room each, batch norms synchronised; for every number read, so many steps and their seconds.
void serve_replicas(const std::string& devices, int64_t voxels) {
  const auto team = parallel::Team::create({.replicas = 2, .devices = devices});
  auto made = make_network();
  norm::convert_sync_batchnorm(*made);
  int steps = 0;
  team.run([&](parallel::Replica& me) {
    auto network = me.share(made);
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.01});
    const Room room(voxels, static_cast<uint64_t>(me.number()) + 1);
    for (;;) {
      if (me.number() == 0 && !(std::cin >> steps)) steps = 0;
      me.barrier();
      const int count = steps;
      me.barrier();  // both have read it
      if (count == 0) return;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < count; ++i)
        me.step(at::cross_entropy_loss(network->forward(room.cloud()).features(), room.labels), optimizer);
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      if (me.number() == 0) std::cout << passed.count() / count << "\n" << std::flush;
    }
  });
}

Json measure_replicas(int64_t voxels, int rounds) {
  const auto command = [&](const char* devices) { return std::vector{text(serve_command(), devices, " ", voxels)}; };
  // What the machine allows: two programs that share it and nothing else.
  const std::string alone = text(serve_command(), "alone ", voxels, " tuned");
  Peer one(command("cpu:1")), two(command("cpu:2")), stranger({alone}), strangers({alone, alone});
  const auto seconds = interleave(rounds, {[&] { return one.run(1); }, [&] { return two.run(1); },
                                           [&] { return stranger.run(1); }, [&] { return strangers.run(1); }});
  const double speedup = ratio(seconds[0], seconds[1]), allowed = 2 * ratio(seconds[2], seconds[3]);
  std::printf(
      "  two replicas with a room of %ld voxels each, cold: 1 thread %.1f ms, 2 threads %.1f ms, x%.2f; two programs "
      "with nothing in common x%.2f\n",
      static_cast<long>(voxels), 1e3 * median(seconds[0]), 1e3 * median(seconds[1]), speedup, allowed);
  return {{"voxels", voxels},
          {"seconds_1", median(seconds[0])},
          {"seconds_2", median(seconds[1])},
          {"speedup", speedup},
          {"allowed", allowed}};
}

// Either "alone VOXELS tuned", or "plain", with " bfloat16" behind it or not; or "DEVICES VOXELS".
void serve(const std::vector<std::string>& words) {
  pin_numerics();
  at::set_num_threads(1);
  if (words.at(0) == "alone")
    return serve_alone(std::stoll(words.at(1)), words.at(2) == "tuned",
                       words.size() > 3 ? Precision::bfloat16 : Precision::float32);
  tune_allocator();
  serve_replicas(words.at(0), std::stoll(words.at(1)));
}

Json measure(const Arguments& arguments) {
  pin_numerics();
  at::set_num_threads(1);
  tune_allocator();
  const std::vector<int64_t> sizes = room_sizes(arguments);
  Json all;
  std::printf("MinkUNet34C, forward and backward, one room, one thread\n");
  for (const int64_t voxels : sizes) all["rooms"].push_back(measure_room(voxels, 5));
  const double plain = peak_mib(sizes.back(), false), tuned = peak_mib(sizes.back(), true),
               low = peak_mib(sizes.back(), true, Precision::bfloat16);
  std::printf(
      "  at most %.0f MiB of memory at about %ld voxels, %.0f with tune_allocator(), in bfloat16 %.0f, %.2f of that\n",
      plain, static_cast<long>(sizes.back()), tuned, low, low / tuned);
  all["peak_mib"] = {{"plain", plain}, {"tuned", tuned}, {"bfloat16", low}};
  all["replicas"] = measure_replicas(sizes.front(), 5);
  return all;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "MinkUNet34C, forward and backward, on rooms; and two replicas with a room each.",
                      .measure = measure,
                      .options = {voxels_option},
                      .serve = serve});
}
