// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/context/stages.h"
#include "lockstep/parallel/forecast.h"
#include "lockstep/parallel/split.h"

/// Which way to divide a network over the threads of a process, or over processes, is the fastest: `--split auto`.
namespace lockstep::parallel {

/// Computes the loss twice, with its gradients, and takes time and memory of the second pass: stages and gradients of
/// the result. For a moment when no other thread of this process allocates much. The gradients of the network stay
/// undefined.
StepCost measure_passes(torch::nn::Module& network, Staged& staged, int64_t slices, uint64_t seed,
                        const std::function<at::Tensor()>& loss);

struct SplitQuestion {
  int64_t replicas = 1;   ///< of all processes
  int64_t processes = 1;  ///< alike
  int64_t devices = 1;    ///< of each
  int64_t slices = 1;
  bool may_be_processes = true;  ///< parts, where a process has too few devices for all
  Order order = Order::canonical;
  int64_t most_bytes = 0;  ///< that replicas in flight may keep in a process; 0: any number
};

struct SplitForecast {
  Split split{};
  double seconds = 0;  ///< of a step
  int64_t bytes = 0;   ///< that replicas in flight keep at most
  std::string cut{};   ///< the first stage of each part
};

/// All splits that these devices can have of a network with so many stages, the plainest first.
std::vector<Split> possible_splits(const SplitQuestion& question, int64_t stages);

/// These, each cut where it is fastest, the best one first: of those that keep no more than allowed the fastest, and
/// where none does the one that keeps least. Of equal ones the plainer.
std::vector<SplitForecast> forecast_splits(const StepCost& cost, const SplitQuestion& question,
                                           const Slowdown& slowdown = {}, const LinkCost& link = {});

/// What a pair of threads needs to begin and to end a layer that it shares.
double measure_meeting();

/// Fills in what adding up one replica's gradients and the update take, from an addition of tensors of that size. A
/// rule reads and writes so many states of each weight beside it.
void measure_update(StepCost& cost, int64_t states);

/// The link between the first and the last process, by sums of up to `most_bytes`, each size `rounds` times.
/// Collective; what comes back is the first process's. Two processes or more.
LinkCost measure_link(const comm::Group& group, int64_t most_bytes, int rounds);

/// A line for each forecast.
std::string describe(const std::vector<SplitForecast>& forecasts, int64_t most_bytes);

}  // namespace lockstep::parallel
