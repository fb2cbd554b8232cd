// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "lockstep/context/detail/batch_norm_mark.h"

namespace lockstep::norm {

/// A base of batch norm modules that are not torch's (those of sparse networks): convert_sync_batchnorm finds them by
/// it and gives them a function that looks at all replicas. Copies of a module keep it.
class BatchNormHook {
 public:
  virtual ~BatchNormHook() = default;

  /// Sets what the layer calls in training instead of its own batch norm; an empty function undoes that. Const, as
  /// converting a network is: it changes how the layer finds its statistics, and nothing that it holds.
  void set_training_function(BatchNormFunction function) const { function_ = std::move(function); }

  const BatchNormFunction& training_function() const { return function_; }

 protected:
  BatchNormHook() = default;
  BatchNormHook(const BatchNormHook&) = default;
  BatchNormHook& operator=(const BatchNormHook&) = default;

 private:
  mutable BatchNormFunction function_;
};

}  // namespace lockstep::norm
