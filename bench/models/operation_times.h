// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

#include <map>
#include <string>

namespace lockstep::bench {

/// What the calling thread's operations do while this lives: how long each kind takes without the operations that it
/// calls, and the arithmetic of sparse convolutions. One at a time on a thread.
class OperationTimes {
 public:
  OperationTimes();
  ~OperationTimes();
  OperationTimes(const OperationTimes&) = delete;
  OperationTimes& operator=(const OperationTimes&) = delete;

  /// By name, as in "aten::add".
  const std::map<std::string, double>& seconds() const { return seconds_; }
  /// 2 x pairs x Cin x Cout of every sparse convolution, its gradients included.
  double convolution_work() const { return work_; }

 private:
  struct Running;
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  static void end(const at::RecordFunction& call, at::ObserverContext* context);

  at::CallbackHandle handle_;
  std::map<std::string, double> seconds_;
  double work_ = 0;
  bool counted_ = false;  // what is under way
  double children_ = 0;   // seconds of operations that the one under way has called
};

}  // namespace lockstep::bench
