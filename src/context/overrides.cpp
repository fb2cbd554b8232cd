// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/random_scope.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <torch/library.h>

#include <mutex>
#include <tuple>
#include <utility>

#include "lockstep/numerics/detail/generator.h"

namespace lockstep {
namespace {

thread_local RandomScope* current_scope = nullptr;

/// What an operation runs as below this file's kernels.
c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
}

/// The device that an operation draws on: that of its first tensor.
at::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments)
    if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
  return at::kCPU;
}

/// In place of any operation that takes an optional generator: hands it the scope's where none was given.
void give_generator(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (RandomScope* scope = current_scope) {
    const auto& schema = operation.schema().arguments();
    const auto arguments = torch::jit::last(*stack, schema.size());
    for (size_t i = 0; i < schema.size(); ++i)
      if (schema[i].type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get())) && arguments[i].isNone())
        torch::jit::peek(*stack, i, schema.size()) = scope->next_generator(device_of(arguments));
  }
  operation.redispatchBoxed(below(keys), stack);
}

bool takes_generator(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments())
    if (argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()))) return true;
  return false;
}

/// It takes no generator, and on CUDA draws in its own kernel.
std::tuple<at::Tensor, at::Tensor> native_dropout(c10::DispatchKeySet keys, const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (current_scope == nullptr || !train.value_or(true))
    return at::_ops::native_dropout::redispatch(below(keys), input, p, train);
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  return {input * mask * (p < 1 ? 1 / (1 - p) : 0.0), mask};
}

// BackendSelect lies below autograd, whose formulas see nothing of this, and above every backend. What is composed of
// other operations, or has a kernel there (the factories), draws through these in the end.
TORCH_LIBRARY_IMPL(aten, BackendSelect, library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto operation = dispatcher.findSchema(name);
    if (name.name.rfind("aten::", 0) != 0 || !operation || !takes_generator(operation->schema())) continue;
    if (operation->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
        operation->hasKernelForDispatchKey(c10::DispatchKey::BackendSelect))
      continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&give_generator>());
  }
  library.impl("native_dropout", TORCH_FN(native_dropout));
}

}  // namespace

RandomScope::RandomScope(RandomKey key) noexcept : key_(key), outer_(std::exchange(current_scope, this)) {}

RandomScope::~RandomScope() {
  current_scope = outer_;
}

void RandomScope::begin(RandomKey key) noexcept {
  key_ = key;
  draws_ = 0;
}

const at::Generator& RandomScope::next_generator(at::Device device) {
  const RandomKey key = next_key();
  for (const at::Generator& generator : generators_)
    if (generator.device().type() == device.type() && (device.is_cpu() || generator.device() == device)) {
      rekey(generator, key);
      return generator;
    }
  return generators_.emplace_back(keyed_generator(key, device));
}

RandomScope* RandomScope::current() noexcept {
  return current_scope;
}

RandomKey draw_key() {
  if (current_scope != nullptr) return current_scope->next_key();
  auto& generator = *at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  const std::lock_guard lock(generator.mutex_);
  const uint64_t seed = generator.random64();
  return {seed, generator.random64()};
}

}  // namespace lockstep
