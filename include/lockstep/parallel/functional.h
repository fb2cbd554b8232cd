// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/numerics/device.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/parallel/scatter.h"

namespace torch::nn {
class Module;
}

/// Data parallelism spelled out: one thread of control cuts the batch, copies the network, runs the copies and joins
/// their outputs.
///
///     auto shares   = scatter(x, devices);
///     auto replicas = replicate(net, devices);
///     auto outputs  = parallel_apply(replicas, shares);
///     loss(gather(outputs, devices[0]), y).backward();     // net's parameters now hold the gradients
///
/// Everything is differentiable and every sum over replicas is in the canonical tree's order, so the bits do not depend
/// on timing. `devices` may name one CPU several times ("cpu:4"): these are replicas on threads of their own. Team
/// (team.h) is the faster way to the same results.
namespace lockstep::parallel {

/// Copies of the parameters on a device, each a leaf that requires a gradient.
std::vector<at::Tensor> get_params(const std::vector<at::Tensor>& params, const Device& device);

/// The sum of the tensors, in the canonical tree's order, in each of them. In place, not recorded. They may lie on
/// several devices. Throws Error where they differ in shape or dtype.
void all_reduce(std::vector<at::Tensor>& tensors);

/// Copies of a network, of the module's own type: one a device, anew for each step. The backward pass through them
/// adds, in tree order, to the gradients of the original's parameters. On the original's device the copies share its
/// values; they are not to be changed. Replica 0 there also shares its buffers, so that running statistics remain;
/// the other replicas' buffers are copies and are lost. Batch norms stay converted.
///
/// Throws Error naming the submodule that can't be cloned: one derived from torch::nn::Module instead of
/// torch::nn::Cloneable.
std::vector<std::shared_ptr<torch::nn::Module>> replicate_module(const torch::nn::Module& module,
                                                                 const Devices& devices);

/// Of a TORCH_MODULE holder or a shared pointer.
template <class Holder>
std::vector<Holder> replicate(const Holder& module, const Devices& devices) {
  using Impl = std::remove_cvref_t<decltype(*module.operator->())>;
  std::vector<Holder> replicas;
  for (auto& replica : replicate_module(*module, devices))
    replicas.emplace_back(std::dynamic_pointer_cast<Impl>(std::move(replica)));
  return replicas;
}

namespace detail {

/// Calls body(replica) for each replica on a thread of its own, with the caller's grad mode and autocast state, one
/// intra-op thread, random numbers of its own (context/random_scope.h) and its peers (context/detail/peers.h), which
/// share their backward pass. Returns when all have ended. Throws ReplicaError of the lowest replica that failed; those
/// that wait for it are woken.
void run_replicas(int64_t replicas, const std::function<void(int64_t)>& body);

template <class T>
std::optional<at::Device> device_of(const T& x) {
  if constexpr (std::same_as<T, at::Tensor>) {
    return x.defined() ? std::optional(x.device()) : std::nullopt;
  } else if constexpr (requires { std::optional<at::Device>(lockstep_device(x)); }) {
    return lockstep_device(x);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return std::apply(
        [](const auto&... members) {
          std::optional<at::Device> found;
          static_cast<void>(((found = device_of(members)) || ...));
          return found;
        },
        x);
  } else {
    return std::nullopt;
  }
}

/// The arguments in an input: a tuple's or a pair's members, or the input itself.
template <class Input>
auto arguments(const Input& input) {
  if constexpr (requires { std::tuple_size<Input>::value; })
    return std::apply([](const auto&... members) { return std::tie(members...); }, input);
  else
    return std::tie(input);
}

template <class Module, class... Arguments>
decltype(auto) call(Module& module, const Arguments&... arguments) {
  if constexpr (requires { module->forward(arguments...); })
    return module->forward(arguments...);
  else
    return module(arguments...);
}

}  // namespace detail

/// Each replica's forward pass of its input, at the same time; the outputs, in order. Dropout draws numbers of each
/// replica's own, which follow from torch::manual_seed or the caller's RandomScope. `replicas` is a vector of
/// holders, shared pointers or any callables. An input that is a tuple or pair is spread over the parameters, and the
/// `more` of each replica (a tuple) follows. Throws Error where the numbers of replicas and inputs differ, and
/// ReplicaError where one threw, after all have ended.
template <class Replicas, class Input, class More = std::tuple<>>
auto parallel_apply(Replicas&& replicas, const std::vector<Input>& inputs, const std::vector<More>& more = {}) {
  require(replicas.size() == inputs.size() && (more.empty() || more.size() == inputs.size()), "parallel_apply",
          "there are ", replicas.size(), " replicas, ", inputs.size(), " inputs and ", more.size(),
          " further arguments, expected the same number (or no further ones)");
  const auto run = [&](size_t r) {
    const c10::OptionalDeviceGuard device(detail::device_of(inputs[r]));
    const auto apply = [&](const auto&... arguments) { return detail::call(replicas[r], arguments...); };
    if constexpr (std::same_as<More, std::tuple<>>)
      return std::apply(apply, detail::arguments(inputs[r]));
    else
      return std::apply(apply, std::tuple_cat(detail::arguments(inputs[r]), detail::arguments(more[r])));
  };
  using Result = std::remove_cvref_t<decltype(run(0))>;
  const auto count = static_cast<int64_t>(replicas.size());
  if constexpr (std::is_void_v<Result>) {
    detail::run_replicas(count, [&](int64_t r) { run(static_cast<size_t>(r)); });
  } else {
    std::vector<std::optional<Result>> outputs(replicas.size());
    detail::run_replicas(count, [&](int64_t r) { outputs[r].emplace(run(static_cast<size_t>(r))); });
    std::vector<Result> results;
    for (auto& output : outputs) results.push_back(std::move(*output));
    return results;
  }
}

}  // namespace lockstep::parallel
