// SPDX-License-Identifier: Apache-2.0
// The functional way: copies of parameters, sums over tensors, and networks applied on threads.
#include "lockstep/parallel/functional.h"

#include <ATen/TensorOperators.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <exception>
#include <thread>

#include "lockstep/context/detail/context.h"
#include "lockstep/context/draws.h"
#include "lockstep/dense/detail/image_operations.h"
#include "lockstep/numerics/detail/callers_streams.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/numerics/tree.h"
#include "parallel/functional/meeting.h"

namespace lockstep::parallel {

std::vector<at::Tensor> get_params(const std::vector<at::Tensor>& params, const Device& device) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& param : params)
    copies.push_back(param.detach().to(param.options().device(device.torch()), /*non_blocking=*/false, /*copy=*/true));
  for (at::Tensor& copy : copies) copy.requires_grad_();
  return copies;
}

void all_reduce(std::vector<at::Tensor>& tensors) {
  require(!tensors.empty(), "all_reduce", "there are no tensors, expected at least one");
  for (const at::Tensor& tensor : tensors)
    require(
        tensor.defined() && tensor.sizes() == tensors[0].sizes() && tensor.scalar_type() == tensors[0].scalar_type(),
        "all_reduce", "tensors differ in shape or dtype, expected the same: ", tensors[0].toString(), " ",
        tensors[0].sizes(), " and ", tensor.toString(), " ", tensor.defined() ? tensor.sizes() : at::IntArrayRef());
  const at::NoGradGuard no_grad;
  const auto merge = [](at::Tensor& left, const at::Tensor& right) { left = left + right.to(left.device()); };
  const auto sum = merge_as_tree(
      std::ssize(tensors), [&](int64_t i) { return tensors[i]; }, merge);
  for (const at::Tensor& tensor : tensors) tensor.copy_(sum);
}

namespace detail {
namespace {

/// Whether a replica failed only because another one had.
bool is_consequence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const MeetingStopped&) {
    return true;
  } catch (...) {
    return false;
  }
}

void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  for (size_t r = 0; r < errors.size(); ++r)
    if (errors[r] && !is_consequence(errors[r])) rethrow_of_replica(static_cast<int64_t>(r), errors[r]);
}

}  // namespace

void run_replicas(int64_t replicas, const std::function<void(int64_t)>& body) {
  install_overrides();
  Meeting meeting(replicas);
  const at::ThreadLocalState state;
  const auto streams = callers_streams();
  const RandomKey key = draw_key();
  std::vector<std::exception_ptr> errors(replicas);
  const auto run = [&](int64_t r) {
    try {
      const at::ThreadLocalStateGuard as_caller(state);
      const OnCallersStreams on(streams);
      const ReplicaNumerics numerics;
      JointPeers peers(meeting, r);
      Draws draws(key.fold(static_cast<uint64_t>(r)));
      const ContextScope context({.peers = &peers, .draws = &draws, .images = &dense::image_operations()});
      body(r);
      meeting.leave(r);
    } catch (...) {
      errors[r] = std::current_exception();
      meeting.stop();
    }
  };
  {
    const IntraOpThreadsKept kept;
    std::vector<std::jthread> threads;
    for (int64_t r = 0; r < replicas; ++r) try {
        threads.emplace_back(run, r);
      } catch (const std::system_error& error) {
        errors[r] = no_thread(error);
        meeting.stop();
        break;
      }
  }
  rethrow_first(errors);
}

}  // namespace detail

}  // namespace lockstep::parallel
