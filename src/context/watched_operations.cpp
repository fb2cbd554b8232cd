// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/watched_operations.h"

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <torch/library.h>

namespace lockstep {
namespace {

// A key of the dispatcher that lies above all others, and that nothing but this file and libtorch's own tests use.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local Watching* innermost = nullptr;

void watch(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);  // not in what the operation is made of
  if (!Watching::tell_all(operation, *stack)) operation.callBoxed(stack);
}

void each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
  if (value.isList())
    for (const c10::IValue& item : value.toListRef()) each_tensor(item, visit);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
}

Watching::Watching(OperationWatcher& watcher) : watcher_(watcher), outer_(innermost), here_(kKey) {
  innermost = this;
}

Watching::~Watching() {
  innermost = outer_;
}

bool Watching::tell_all(const c10::OperatorHandle& operation, torch::jit::Stack& stack) {
  for (const Watching* one = innermost; one != nullptr; one = one->outer_)
    if (one->watcher_.before(operation, stack)) return true;
  return false;
}

Unwatched::Unwatched() : here_(kKey) {}

void each_tensor(const c10::OperatorHandle& operation, const torch::jit::Stack& stack,
                 const std::function<void(const at::Tensor&)>& visit) {
  for (const c10::IValue& value : torch::jit::last(stack, operation.schema().arguments().size()))
    each_tensor(value, visit);
}

}  // namespace lockstep
