// SPDX-License-Identifier: Apache-2.0
// Weights whose first values are still to be drawn.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Storage.h>

#include <exception>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/context/detail/watched_operations.h"
#include "lockstep/numerics/detail/fill_taker.h"

namespace lockstep {

/// A process that holds a part of a network is not to have the memory of all of it, not even while its replicas make
/// it. So a parameter that is filled with random numbers has no memory at first: its draw is taken and
/// remembered, and when an operation uses the parameter, it is filled with what it would have had from the beginning.
/// Whoever asks for its memory in another way is told by libtorch that there is none.
///
/// Threads may use it at once.
class UnfilledWeights : public OperationWatcher, public FillTaker {
 public:
  /// While it lives, parameters that this thread makes wait for their values, and those that it uses get them.
  class Scope {
   public:
    explicit Scope(UnfilledWeights& weights) : taking_(weights), watching_(weights) {}

   private:
    const FillTaker::Scope taking_;
    const Watching watching_;
  };

  bool before(const c10::OperatorHandle& operation, torch::jit::Stack& stack) override;
  bool take(const at::Tensor& tensor, const std::string& what, const Fill& fill) override;

  /// What the parameter is to be filled with, in words that are the same where the values are; empty: it is filled.
  std::string recipe(const at::Tensor& parameter) const;
  /// The same error, or one that says more where somebody has asked for memory that isn't there.
  static std::exception_ptr explained(const std::exception_ptr& error);
  /// A tensor to take the parameter's place, unfilled like that one. Its values will lie where the view does.
  at::Tensor placed(const at::Tensor& parameter, const at::Tensor& view);
  /// No other parameter waits from now on. Those that have no place get memory of their own.
  void close();
  /// If it is such a parameter, it has its values from now on.
  void fill(const at::Tensor& tensor);

  /// While it lives, this thread fills parameters for the moment: give_back() lets go of their values again.
  class Loan {
   public:
    explicit Loan(UnfilledWeights& weights);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    void give_back();

   private:
    UnfilledWeights& weights_;
  };

 private:
  struct Weight {
    c10::Storage storage{};
    at::Tensor form{};  // of the parameter as it was made
    std::string recipe{};
    std::vector<Fill> fills{};
    at::Tensor view{};  // where its values will lie; undefined: in memory of its own
    bool is_lent = false;
  };

  bool may_wait(const at::Tensor& tensor) const LOCKSTEP_REQUIRES(mutex_);
  bool is_whole(const at::Tensor& tensor) const LOCKSTEP_REQUIRES(mutex_);
  static void draw(const Weight& weight);

  mutable Mutex mutex_;
  std::map<const c10::StorageImpl*, Weight> weights_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
