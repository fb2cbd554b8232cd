// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "comm/transport/transport.h"
#include "lockstep/numerics/tree.h"

namespace lockstep::comm {

/// Messages of collectives, of the check of their signatures, and (from here on, odd) of the user's tags.
enum Channel : uint32_t { kCollectives = 0, kSignatures = 2 };

/// Starts one round of messages; empty ones do not travel. Null where none does.
std::unique_ptr<Pending> begin_exchange(Transport& transport, std::vector<Message> sends, std::vector<Message> receives,
                                        uint32_t channel = kCollectives);

/// The same, and waits for it.
void exchange(Transport& transport, std::vector<Message> sends, std::vector<Message> receives,
              Clock::time_point deadline, uint32_t channel = kCollectives);

/// The canonical sum (or other reduction) over the logical replicas of a placement, one process a rank: `nodes` are
/// this process's partial results, one a maximal node of its block (block_nodes), each the size of `result`; `result`
/// may be one of them. Each rank owns a slice: it receives every process's nodes of that slice, combines them in tree
/// order, and sends the result to all. For aligned blocks that is 2 (P - 1) / P of the tensor in and out of each
/// process, as a ring moves. The tensor is cut into pieces so that sending, adding and returning overlap.
void canonical_all_reduce(Transport& transport, const Placement& placement, const TensorList& nodes,
                          const at::Tensor& result, ReduceOp op, Clock::time_point deadline);

/// Runs a collective (not send or recv) as rounds of messages. Blocks.
void run_collective(Transport& transport, const Call& call, Clock::time_point deadline);

/// The first rank whose call differs from rank 0's, and a message that shows both.
struct SignatureMismatch {
  int rank;
  std::string message;
};

/// Every rank tells every other what it is about to do (debug mode: LOCKSTEP_DEBUG=1), so that calls that don't match
/// are an error and not a hang. The same answer on all ranks.
std::optional<SignatureMismatch> compare_signatures(Transport& transport, const Call& call, Clock::time_point deadline);

}  // namespace lockstep::comm
