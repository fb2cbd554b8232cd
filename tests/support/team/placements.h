// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"

namespace lockstep::test {

/// Whether this build can join ranks by sockets (it has Gloo).
bool joins_ranks();
/// A name for a group that no other test has.
std::string new_job();
/// The group of `count` ranks of this job, which are processes or threads.
comm::Group join(const std::string& job, int rank, int count);

/// Calls body(group) for `count` ranks that are joined by sockets, as processes are, but are threads of this test.
/// Whether this build can (it has Gloo).
bool run_ranks(int count, const std::function<void(const comm::Group&)>& body);

struct Placed {
  int ranks;
  const char* devices;
  std::vector<int64_t> blocks{};
};
std::ostream& operator<<(std::ostream& out, const Placed& placed);

/// Placements of eight replicas: one, two and eight threads, and where this build can join them two and three
/// processes. The first is what the others are compared with.
std::vector<Placed> placements();

using State = std::map<std::string, at::Tensor>;

/// What body returns on replica 0, where this recipe's replicas are placed so.
State run_placed(const Placed& placed, const parallel::TeamOptions& recipe,
                 const std::function<State(parallel::Replica&)>& body);

/// Weights, buffers and the optimiser's state. Collective.
State state_of(parallel::Replica& me, const torch::nn::Module& network, const parallel::Optimizer& optimizer);

/// Fails, naming the tensor, where two states differ in a bit.
void expect_equal(const State& a, const State& b);

/// The recipe under every placement: the same bits. Returns the first's.
State expect_same_everywhere(const parallel::TeamOptions& recipe, const std::function<State(parallel::Replica&)>& body);

}  // namespace lockstep::test
