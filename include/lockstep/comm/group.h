// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/error.h"
#include "lockstep/comm/work.h"
#include "lockstep/numerics/reduce.h"

namespace lockstep::comm {

class Backend;
class Group;
Group hierarchical_group(const Group& threads, const Group& processes);

/// Who decides the order of additions. `canonical`: the balanced tree over ranks, the same bits on every backend and
/// in every placement. `ring`: the backend's own all-reduce, for speed without the contract.
enum class Order : uint8_t { canonical, ring };
/// "canonical" or "ring". Throws Error on any other text.
Order parse_order(const std::string& text);

/// What can be said of one call. A timeout of zero means the group's.
struct CallOptions {
  std::chrono::milliseconds timeout{0};
  Order order = Order::canonical;
};

using TensorList = std::vector<at::Tensor>;

/// The ranks that work together. A small value: copies are the same member of the same group. A group of one is a
/// working group, so training code has one path.
///
/// Every operation is posted and returns a Work; `.wait()` makes it a blocking call. All ranks call the same
/// operations in the same order, with the same dtype and sizes (send and recv pair up by their tag instead). Tensors
/// are float32, float64, float16, bfloat16, int32, int64 or bool, and uint8 where nothing is reduced, on the CPU or,
/// where the backend can, on CUDA; any strides; zero elements are fine. Where a list of tensors is taken, the list is
/// one operation: many small tensors cost one round.
///
/// Mistakes in the arguments throw Error at once; the failure of a peer throws CommError from `wait()`.
/// One member may be used by several threads only where they agree on the order of its calls.
class Group {
 public:
  /// A group of one.
  Group();
  explicit Group(std::shared_ptr<Backend> backend);

  int rank() const;
  int size() const;
  /// "local", "gloo", "nccl", "mpi", "hierarchical".
  std::string backend() const;
  /// The default timeout of its operations.
  std::chrono::milliseconds timeout() const;
  /// Whether a member may be lost and the others go on, in another group (membership.h).
  bool may_lose_members() const;
  /// The bytes that this process has sent to others for operations of this group (not of those split off it). Memory
  /// that threads share is not sent.
  int64_t bytes_sent() const;

  /// In place: every rank's tensors become their sum, mean, minimum or maximum over all ranks.
  Work all_reduce(const TensorList& tensors, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;
  Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;

  /// A sum, minimum or maximum over logical replicas that outnumber the ranks: rank p holds those of
  /// `placement.block(p)`. `nodes` are the partial results of its block, one for each of block_nodes(replicas, block)
  /// and in that order; `result` receives the whole tree's, the same bits for every placement. All have one size and
  /// dtype and are contiguous; `result` may be one of the nodes, and the others are left as they are.
  Work all_reduce_blocks(const Placement& placement, const TensorList& nodes, const at::Tensor& result,
                         ReduceOp op = ReduceOp::sum, CallOptions options = {}) const;

  /// `input` [size * n, ...] is reduced over all ranks; this rank's n rows come to `output` [n, ...].
  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::sum,
                      CallOptions options = {}) const;

  /// `output` [size * n, ...]: the ranks' `input` [n, ...], one after another.
  Work all_gather(const at::Tensor& output, const at::Tensor& input, CallOptions options = {}) const;
  Work all_gather(const TensorList& outputs, const TensorList& inputs, CallOptions options = {}) const;

  /// As all_gather, to `root` alone; the others pass an undefined output.
  Work gather(const at::Tensor& output, const at::Tensor& input, int root, CallOptions options = {}) const;

  /// The root's `input` [size * n, ...] is cut over the ranks' `output` [n, ...]; the others pass an undefined input.
  Work scatter(const at::Tensor& output, const at::Tensor& input, int root, CallOptions options = {}) const;

  /// In place: every rank's tensors become the root's.
  Work broadcast(const TensorList& tensors, int root, CallOptions options = {}) const;
  Work broadcast(const at::Tensor& tensor, int root, CallOptions options = {}) const;

  /// Rank s gets the s-th part of `input` and puts rank r's part r-th into `output`. With counts, part r of the input
  /// has `input_counts[r]` rows and part r of the output `output_counts[r]`; without, all have the same.
  Work all_to_all(const at::Tensor& output, const at::Tensor& input, CallOptions options = {}) const;
  Work all_to_all(const at::Tensor& output, const at::Tensor& input, std::span<const int64_t> output_counts,
                  std::span<const int64_t> input_counts, CallOptions options = {}) const;

  /// Messages between two ranks with the same tag arrive in the order they were sent.
  Work send(const at::Tensor& tensor, int to, int tag = 0, CallOptions options = {}) const;
  Work recv(const at::Tensor& tensor, int from, int tag = 0, CallOptions options = {}) const;

  Work barrier(CallOptions options = {}) const;

  /// Collective: ranks with the same colour form a group, ordered by key, then by rank here. A negative colour takes
  /// part in none and gets a group of one.
  Group split(int color, int key = 0) const;

  /// Collective: waits until all ranks are here, then leaves. Destroying the last copy without it never blocks; what
  /// the others still wait for from this rank fails at once.
  void finish() const;

  /// Makes every operation of every member fail, now and later, with this reason, and those of groups split off it.
  void abort(const std::string& reason) const;

 private:
  friend Group hierarchical_group(const Group& threads, const Group& processes);
  std::shared_ptr<Backend> backend_;
};

/// The timeout of groups that are given none: LOCKSTEP_TIMEOUT in seconds, or 5 minutes.
std::chrono::milliseconds default_timeout();

/// One group of `size` members for the threads of this process: element r is for rank r's thread.
std::vector<Group> local_groups(int size, std::chrono::milliseconds timeout = default_timeout());

/// Joins groups of threads in several processes into one group over all of them. `threads`: this thread's member of
/// its process's local group. `processes`: the group of the processes, the same in all threads of a process (only one
/// of them uses it at a time). Global ranks are ordered by process, then by thread; processes may have different
/// numbers of threads. Collective over all threads of all processes. Each slice is added up within a process first and
/// crosses between processes once.
Group hierarchical_group(const Group& threads, const Group& processes);

}  // namespace lockstep::comm
