// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "simulation/world/scheduler.h"

namespace lockstep::simulation {

/// Where simulated processes meet: each call takes some time on the way.
class Store {
 public:
  explicit Store(Scheduler& scheduler) : scheduler_(scheduler) {}
  /// This process's connection to it. Calls fail once the process is dead.
  c10::intrusive_ptr<c10d::Store> connect(int process);
  void disconnect(int process) { disconnected_.insert(process); }

 private:
  friend class StoreConnection;
  Scheduler& scheduler_;
  std::map<std::string, std::vector<uint8_t>> values_;
  std::set<int> disconnected_;
};

}  // namespace lockstep::simulation
