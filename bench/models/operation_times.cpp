// SPDX-License-Identifier: Apache-2.0
#include "models/operation_times.h"

#include "lockstep/sparse/kernel_map.h"
#include "support/sgemm.h"

namespace lockstep::bench {
namespace {

thread_local OperationTimes* current = nullptr;

double pairs(const c10::IValue& map) {
  return static_cast<double>(map.toCustomClass<sparse::KernelMap>()->pair_count());
}

double work_of(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  if (!name.starts_with("lockstep_sparse::convolution")) return 0;
  const auto inputs = call.inputs();
  const at::Tensor first = inputs[0].toTensor(), second = inputs[1].toTensor();
  if (name == "lockstep_sparse::convolution_weight")  // of x and g
    return 2 * pairs(inputs[2]) * static_cast<double>(first.size(1) * second.size(1)) /
           static_cast<double>(inputs[3].toInt());
  return 2 * pairs(inputs[2]) * static_cast<double>(second.size(1) * second.size(2));  // [K, Cin, Cout]
}

}  // namespace

struct OperationTimes::Running : at::ObserverContext {
  bool counted = false;
  double start = 0;
  double siblings = 0;
};

OperationTimes::OperationTimes()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&begin, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
  current = this;
}

OperationTimes::~OperationTimes() {
  at::removeCallback(handle_);
  current = nullptr;
}

std::unique_ptr<at::ObserverContext> OperationTimes::begin(const at::RecordFunction& call) {
  auto running = std::make_unique<Running>();
  // Autograd's part of an operation calls the same operation again, for its arithmetic.
  if (!current->counted_) {
    const double work = work_of(call);
    current->work_ += work;
    current->counted_ = running->counted = work > 0;
  }
  running->siblings = std::exchange(current->children_, 0);
  running->start = work_seconds();
  return running;
}

void OperationTimes::end(const at::RecordFunction& call, at::ObserverContext* context) {
  const auto& running = static_cast<const Running&>(*context);
  if (running.counted) current->counted_ = false;
  const double passed = work_seconds() - running.start;
  current->seconds_[call.name()] += passed - current->children_;
  current->children_ = running.siblings + passed;
}

}  // namespace lockstep::bench
