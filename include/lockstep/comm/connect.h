// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// Where this process stands among the processes of its job, as its launcher's environment says.
struct Environment {
  std::string launcher;  // "lockstep run", "torchrun", "openmpi", "mpich", "slurm", "env" (RANK and its like), "none"
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the processes of this host: which device to take
  int local_size = 1;
  /// Where the store listens. Empty for a group of one, and under mpirun over several hosts without MASTER_ADDR.
  std::string store_host;
  int store_port = 0;            // 0 under mpirun on one host: rank 0 takes a port and publishes it in a file
  bool store_is_served = false;  // the launcher serves the store; else rank 0 does
  std::string job;               // tells jobs on one host apart; the hosts of one job may see different texts
};

/// Reads the environment that `lockstep run`, torchrun, Kubernetes training operators (PyTorchJob), mpirun (OpenMPI,
/// MPICH) and srun set. None of them: a job of one. Where they nest, the innermost counts. Throws Error on a broken
/// environment: variables that are half set, make no sense or contradict each other. `get` looks up one variable.
Environment read_environment(const std::function<std::optional<std::string>(const std::string&)>& get);
Environment read_environment();

struct ConnectOptions {
  /// "auto" (mpi under mpirun where built in, else nccl where each process has a GPU of its own, else gloo: rank 0
  /// chooses for all), or one of backends().
  std::string backend = "auto";
  std::chrono::milliseconds timeout = default_timeout();
  /// Tells several groups of one job apart: each connect() of a process takes another name.
  std::string name = "main";
  /// The network interface of this host, by its address or name; empty takes the one that leads to the store.
  std::string interface = {};
  /// Whether ranks whose operation fails find out from each other who is to blame, which takes up to a second where one
  /// has died. Without it they fail at once, and name the one that they waited for; connecting is given up after 5 s.
  bool asks_around = true;
  /// Asked now and then, by any thread, while ranks wait for each other to connect, also later for a part of them
  /// (Group::split). True: not all will come, and connecting fails at once.
  std::function<bool()> given_up = {};
  /// Lets "nccl" set TORCH_NCCL_ASYNC_ERROR_HANDLING=0 in the environment of this process, where it is not set: without
  /// it c10d ends the process of a rank whose peer has failed, before a CommError can. The other backends change
  /// nothing of the process: "gloo" blocks SIGPIPE in its own threads, and in the caller's for as long as a call takes.
  bool sets_environment = true;
};

/// The backends that join processes and are built in: a part of {"gloo", "mpi", "nccl"}.
std::vector<std::string> backends();

/// The group of all processes of this job, from the launcher's environment. A process started by none is a group of
/// one. Throws Error on a bad environment and CommError when the others don't come within the timeout.
Group connect(const ConnectOptions& options = {});
Group connect(const Environment& environment, const ConnectOptions& options);

/// What this process computes on where nobody says it: alone, the first GPU or all cores; as one of several of its
/// host, the GPU of its local rank, or its part of the cores (numerics/device_choice.h).
std::string usual_devices(const Group& group);

}  // namespace lockstep::comm
