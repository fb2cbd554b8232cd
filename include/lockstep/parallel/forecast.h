// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/numerics/placement.h"
#include "lockstep/parallel/split.h"
#include "lockstep/parallel/team.h"

/// How long a step takes that nobody has run: the schedule of a team's replicas in virtual time. Permits, cuts, buckets
/// and messages are those of the program itself; times of computing and of links are given.
namespace lockstep::parallel {

/// What one replica's pass through a stage costs, on one device that nobody else disturbs.
struct StageCost {
  std::string name{};
  double forward = 0;  ///< seconds
  double backward = 0;
  double late_backward = 0;   ///< of it: gradients of weights that may wait until a device would be idle
  double sliced_forward = 0;  ///< of these, in slices that sharers divide
  double sliced_backward = 0;
  int64_t sliced_layers = 0;  ///< products that were computed in slices: sharers meet at each
  int64_t kept_bytes = 0;     ///< of memory, from the forward pass on until the backward pass
  int64_t handed_bytes = 0;   ///< to the next stage: what crosses where that is in another process
  int64_t handed_tensors = 0;
  int64_t returned_bytes = 0;  ///< the gradients of these
  int64_t returned_tensors = 0;

  double seconds() const { return forward + backward; }
};

/// A parameter: when its gradient is there.
struct GradientCost {
  int64_t numel = 0;
  int64_t element_bytes = 4;
  int64_t stage = 0;  ///< in whose backward pass it comes
  double at = 0;      ///< seconds after that began
};

/// What a step costs on one device. Passes are of a share of the usual size.
struct StepCost {
  std::vector<StageCost> stages{};
  std::vector<GradientCost> gradients{};  ///< in the order in which they come
  double data = 0;                        ///< a replica's wait for its share
  double sum_row = 0;                     ///< adding up: all of one replica's gradients
  double update = 0;                      ///< the rule, on all weights
  double turn = 0;                        ///< a replica takes its turn: counts as waiting
  double meeting = 0;                     ///< sharers begin and end a layer
};

/// How much slower computing is where so many threads of a host compute at once: [n - 1], from 1 thread on. More
/// threads than that are as slow as the last. Update, sums and messages move memory and have numbers of their own.
struct Slowdown {
  std::vector<double> passes{1};  ///< of threads in a process each
  std::vector<double> memory{1};
  /// Of threads of one process, which share its memory and wake each other. Empty: as processes.
  std::vector<double> thread_passes{};
  std::vector<double> thread_memory{};
  /// Seconds that a replica's turn takes more. Empty: none.
  std::vector<double> thread_turn{};
};

/// A link between processes. Each rank has one, which sends and receives at its full rate at the same time.
struct LinkCost {
  double latency = 0;             ///< seconds, of a message of no size
  double bytes_per_second = 1e9;  ///< each way
  double message = 0;             ///< seconds that a message more takes, whatever its size
  double cpu_byte = 0;            ///< seconds of a core, for a byte sent and received
  double cpu_message = 0;         ///< and for a message
};

/// Where a step runs.
struct StepPlacement {
  Placement blocks{{1}};       ///< replicas of each process; of each copy of the network where parts are processes
  int64_t devices = 1;         ///< threads of each process
  int64_t cores = 0;           ///< that a process has for itself; 0: one for each of its devices
  int64_t host_processes = 1;  ///< that compute on one host at once, and slow each other
  Split split{};
  bool parts_are_processes = false;  ///< not threads
  Order order = Order::canonical;
  /// How many times the usual share a replica has in a step; empty: once.
  std::function<double(int64_t step, int64_t replica)> share{};
  int64_t steps = 3;  ///< that are looked at; the first is left out
};

/// Where a step's time goes, as the mean over devices: the parts add up to the whole.
struct StepForecast {
  double seconds = 0;
  double forward = 0;
  double backward = 0;
  double longest_forward = 0;           ///< of parts that are processes: in the one where it takes longest
  double longest_backward = 0;          ///< else as the mean
  double update = 0;                    ///< gradients of this process added up, and the rule
  double data = 0;                      ///< for examples
  double communication = 0;             ///< exposed: nothing could be computed meanwhile
  double bubble = 0;                    ///< of a network in parts: devices without a replica in their part
  double wait = 0;                      ///< for the other replicas, and what is left
  int64_t bytes_sent = 0;               ///< by the process that sends most
  int64_t kept_bytes = 0;               ///< by replicas in flight, in the process that needs most memory
  int64_t pass_bytes = 0;               ///< of these, by one replica that has gone forwards
  int64_t gradient_bytes = 0;           ///< of one replica, in that process
  std::vector<int64_t> first_stages{};  ///< of each part
};

/// The same answer for the same numbers. Throws Error where a split has more parts than there are stages.
StepForecast forecast_step(const StepCost& cost, const StepPlacement& placement, const Slowdown& slowdown = {},
                           const LinkCost& link = {});

/// How long a sum of so many numbers over all processes takes, with nothing else to do. `may_halve`: false for the
/// canonical exchange of slices also where processes would meet by halves, to compare.
double all_reduce_seconds(const Placement& blocks, int64_t numel, int64_t element_bytes, Order order,
                          const LinkCost& link, bool may_halve = true);

}  // namespace lockstep::parallel
