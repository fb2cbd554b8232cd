// SPDX-License-Identifier: Apache-2.0
// Looking on while a thread calls libtorch's operations.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>

namespace lockstep {

class OperationWatcher {
 public:
  OperationWatcher() = default;
  OperationWatcher(const OperationWatcher&) = delete;
  OperationWatcher& operator=(const OperationWatcher&) = delete;
  virtual ~OperationWatcher() = default;

  /// Before an operation runs, whose arguments are the last values on the stack. True: it need not run any more, and
  /// its results have taken their place.
  virtual bool before(const c10::OperatorHandle& operation, torch::jit::Stack& stack) = 0;
};

/// While it lives, the watcher is told of all operations that this thread calls, but not of those that an operation is
/// made of. Several may live at once: the last is told first.
class Watching {
 public:
  explicit Watching(OperationWatcher& watcher);
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  static bool tell_all(const c10::OperatorHandle& operation, torch::jit::Stack& stack);

 private:
  OperationWatcher& watcher_;
  Watching* const outer_;
  const c10::impl::IncludeDispatchKeyGuard here_;
};

/// While it lives, no watcher is told of what this thread does.
class Unwatched {
 public:
  Unwatched();

 private:
  const c10::impl::ExcludeDispatchKeyGuard here_;
};

/// The tensors among an operation's arguments, those in lists too.
void each_tensor(const c10::OperatorHandle& operation, const torch::jit::Stack& stack,
                 const std::function<void(const at::Tensor&)>& visit);

}  // namespace lockstep
