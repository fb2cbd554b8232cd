// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace lockstep {

/// What random.h's functions would fill may be taken by somebody who fills it later, on the calling thread.
class FillTaker {
 public:
  using Fill = std::function<void(const at::Tensor&)>;

  FillTaker() = default;
  FillTaker(const FillTaker&) = delete;
  FillTaker& operator=(const FillTaker&) = delete;
  virtual ~FillTaker() = default;

  /// `what` says in words what `fill` does. False: it is to be filled at once.
  virtual bool take(const at::Tensor& tensor, const std::string& what, const Fill& fill) = 0;

  /// This thread's; null: there is none.
  static FillTaker* current() noexcept;

  /// While it lives, the taker is this thread's.
  class Scope {
   public:
    explicit Scope(FillTaker& taker) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    FillTaker* const outer_;
  };
};

}  // namespace lockstep
