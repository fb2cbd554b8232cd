// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/group.h"

namespace lockstep::comm::test {

/// What one rank contributes: known to every rank, so that each can work out every result by itself.
at::Tensor contribution(int rank, int64_t length, at::ScalarType dtype, int64_t salt = 0);

/// The sum (or other reduction) of all ranks' contributions in the canonical tree's order, one addition after another.
at::Tensor tree_reference(ReduceOp op, int size, int64_t length, at::ScalarType dtype, int64_t salt = 0);

/// Each runs one collective on this rank's member and throws std::runtime_error where a result is wrong.
void check_all_reduce(const Group& group, int64_t length, at::ScalarType dtype);
void check_coalesced(const Group& group, at::ScalarType dtype);
void check_ring(const Group& group, int64_t length, at::ScalarType dtype);
void check_reduce_scatter(const Group& group, int64_t length, at::ScalarType dtype);
void check_gathers(const Group& group, int64_t length, at::ScalarType dtype);
void check_scatter(const Group& group, int64_t length, at::ScalarType dtype);
void check_broadcast(const Group& group, int64_t length, at::ScalarType dtype);
void check_all_to_all(const Group& group, int64_t length, at::ScalarType dtype);
void check_messages(const Group& group, int64_t length, at::ScalarType dtype);
void check_bytes(const Group& group);
void check_non_contiguous(const Group& group);
void check_inference_mode(const Group& group);
void check_asynchronous(const Group& group);
void check_split(const Group& group);

/// All of them: every length and dtype that the suite sweeps. `longest` is the longest of the lengths.
void check_everything(const Group& group, int64_t longest = 1 << 20);

}  // namespace lockstep::comm::test
