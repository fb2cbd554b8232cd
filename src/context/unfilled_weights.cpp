// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/unfilled_weights.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/context/draws.h"
#include "lockstep/numerics/detail/flat.h"
#include "lockstep/numerics/detail/generator.h"

namespace lockstep {
namespace {

thread_local const UnfilledWeights* lender = nullptr;

bool is_filled(const c10::Storage& storage) {
  return storage.data() != nullptr;
}

void let_go(c10::Storage& storage) {
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, at::kCPU));
}

/// Memory of another storage, which lives as long as this does.
c10::DataPtr memory_of(const at::Tensor& view) {
  return {view.mutable_data_ptr(), new c10::Storage(view.storage()),
          [](void* storage) { delete static_cast<c10::Storage*>(storage); }, at::kCPU};
}

const c10::StorageImpl* key_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

std::string name_of(const c10::OperatorHandle& operation) {
  const c10::OperatorName& name = operation.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// to() that is asked for what the tensor is already.
bool changes_nothing(const at::Tensor& tensor, const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments) {
  for (size_t a = 1; a < arguments.size(); ++a) {
    const std::string& name = schema.arguments()[a].name();
    if (arguments[a].isNone() || name == "non_blocking") continue;
    const bool same = (name == "device" && arguments[a].toDevice().is_cpu()) ||
                      (name == "dtype" && arguments[a].toScalarType() == tensor.scalar_type()) ||
                      (name == "layout" && arguments[a].toLayout() == tensor.layout()) ||
                      ((name == "copy" || name == "pin_memory") && !arguments[a].toBool());
    if (!same) return false;
  }
  return true;
}

// Whether an operation asks for no values: it gives another tensor of the same memory, or looks at forms alone, as
// libtorch's initialisers do, which ask a convolution's weight[0][0] for its size.
bool needs_no_values(const std::string& name, const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments) {
  constexpr std::array kForms{"aten::_has_compatible_shallow_copy_type",
                              "aten::alias",
                              "aten::detach",
                              "aten::narrow",
                              "aten::permute",
                              "aten::select.int",
                              "aten::t",
                              "aten::transpose.int",
                              "aten::view"};
  if (std::ranges::find(kForms, name) != kForms.end()) return true;
  return name.starts_with("aten::to.") && arguments[0].isTensor() &&
         changes_nothing(arguments[0].toTensor(), schema, arguments);
}

}  // namespace

bool UnfilledWeights::may_wait(const at::Tensor& tensor) const {
  return !is_closed_ && tensor.requires_grad() && tensor.is_leaf() && tensor.is_cpu() && is_whole(tensor);
}

bool UnfilledWeights::is_whole(const at::Tensor& tensor) const {
  return tensor.has_storage() && tensor.is_contiguous() && tensor.storage_offset() == 0 && tensor.numel() > 0 &&
         tensor.storage().nbytes() == tensor.nbytes();
}

bool UnfilledWeights::take(const at::Tensor& tensor, const std::string& what, const Fill& fill) {
  {
    const Lock lock(mutex_);
    if (may_wait(tensor)) {
      Weight weight{.storage = tensor.storage(), .recipe = what, .fills = {fill}};
      const Unwatched unwatched;
      weight.form = tensor.detach();
      let_go(weight.storage);
      weights_[key_of(tensor)] = std::move(weight);
      return true;
    }
  }
  fill(tensor);
  return false;
}

bool UnfilledWeights::before(const c10::OperatorHandle& operation, torch::jit::Stack& stack) {
  const std::string name = name_of(operation);
  const size_t count = operation.schema().arguments().size();
  const auto arguments = torch::jit::last(stack, count);
  if (needs_no_values(name, operation.schema(), arguments)) return false;
  const auto later = [&](RandomKey key) -> Fill {
    return [operation, key,
            rest = std::vector<c10::IValue>(arguments.begin() + 1, arguments.end())](const at::Tensor& tensor) {
      torch::jit::Stack call{tensor};
      for (const c10::IValue& argument : rest) call.push_back(argument);
      if (call.back().isNone()) call.back() = keyed_generator(key);
      operation.callBoxed(call);
    };
  };
  const auto words = [&] {
    std::string out = name;
    for (const c10::IValue& argument : arguments.slice(1))
      if (argument.isScalar()) out += text(' ', argument.toScalar());
    return out;
  };
  const auto leave_out = [&] {
    const at::Tensor tensor = arguments[0].toTensor();
    torch::jit::drop(stack, count);
    stack.emplace_back(tensor);
    return true;
  };
  if ((name == "aten::uniform_" || name == "aten::normal_") && arguments.back().isNone() &&
      Draws::current() != nullptr) {
    bool waits = false;
    {
      const Lock lock(mutex_);
      waits = may_wait(arguments[0].toTensor());
    }
    if (waits) {
      const RandomKey key = Draws::current()->next_key();
      LOCKSTEP_ASSERT(take(arguments[0].toTensor(), text(words(), ' ', key.seed, ' ', key.stream), later(key)));
      return leave_out();
    }
  }
  if (name == "aten::mul_.Scalar") {
    const Lock lock(mutex_);
    const auto found = weights_.find(key_of(arguments[0].toTensor()));
    if (found != weights_.end() && !is_closed_ && is_whole(arguments[0].toTensor())) {
      found->second.recipe += text(", ", words());
      found->second.fills.push_back(later({}));
      return leave_out();
    }
  }
  each_tensor(operation, stack, [&](const at::Tensor& tensor) { fill(tensor); });
  return false;
}

void UnfilledWeights::fill(const at::Tensor& tensor) {
  const Lock lock(mutex_);
  const auto found = weights_.find(key_of(tensor));
  if (found == weights_.end()) return;
  Weight& weight = found->second;
  const bool is_for_the_moment = lender == this;
  if (!is_filled(weight.storage)) {
    draw(weight);
    weight.is_lent = is_for_the_moment;
  }
  if (!is_for_the_moment) weights_.erase(found);
}

void UnfilledWeights::draw(const Weight& weight) {
  const at::NoGradGuard no_grad;
  const Unwatched unwatched;
  c10::Storage storage = weight.storage;
  if (!weight.view.defined()) {
    storage.set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(storage.nbytes()));
    for (const Fill& fill : weight.fills) fill(weight.form);
    return;
  }
  // Random numbers come in the order of the parameter as it was made.
  const bool is_direct = weight.view.strides() == weight.form.strides();
  const at::Tensor filled =
      is_direct ? weight.view : at::empty(weight.form.sizes(), weight.form.options().requires_grad(false));
  for (const Fill& fill : weight.fills) fill(filled);
  if (!is_direct) weight.view.detach().copy_(filled);
  storage.set_data_ptr_noswap(memory_of(weight.view));
}

std::string UnfilledWeights::recipe(const at::Tensor& parameter) const {
  const Lock lock(mutex_);
  const auto found = weights_.find(key_of(parameter));
  return found == weights_.end() ? "" : found->second.recipe;
}

std::exception_ptr UnfilledWeights::explained(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& found) {
    const std::string what = found.what_without_backtrace();
    if (what.find("data is not allocated") == std::string::npos) return error;
    return std::make_exception_ptr(
        Error(text("a tensor without memory was used: where processes hold parts of a network, a weight that is drawn "
                   "has none before an operation uses it, expected operations in place of pointers until the first "
                   "step has ended (weight.copy_(values), not weight.data_ptr()). libtorch said: ",
                   what)));
  } catch (...) {
    return error;
  }
}

at::Tensor UnfilledWeights::placed(const at::Tensor& parameter, const at::Tensor& view) {
  const Lock lock(mutex_);
  auto node = weights_.extract(key_of(parameter));
  LOCKSTEP_ASSERT(!node.empty());
  Weight& weight = node.mapped();
  const size_t bytes =
      at::detail::computeStorageNbytes(view.sizes(), view.strides(), view.dtype().itemsize(), /*storage_offset=*/0);
  weight.view = view;
  weight.storage = c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, at::kCPU),
                                /*allocator=*/nullptr, /*resizable=*/false);
  const Unwatched unwatched;
  const at::Tensor placed = at::empty({0}, view.options()).set_(weight.storage, 0, view.sizes(), view.strides());
  node.key() = weight.storage.unsafeGetStorageImpl();
  weights_.insert(std::move(node));
  return placed;
}

void UnfilledWeights::close() {
  const Lock lock(mutex_);
  is_closed_ = true;
  constexpr size_t kOurs = 2;  // the storage, and the form's
  std::erase_if(weights_, [](const auto& item) {
    const Weight& weight = item.second;
    if (weight.view.defined()) return false;
    if (!is_filled(weight.storage) && weight.storage.use_count() > kOurs) draw(weight);
    return true;
  });
}

UnfilledWeights::Loan::Loan(UnfilledWeights& weights) : weights_(weights) {
  lender = &weights;
}

UnfilledWeights::Loan::~Loan() {
  give_back();
  lender = nullptr;
}

void UnfilledWeights::Loan::give_back() {
  const Lock lock(weights_.mutex_);
  for (auto& [key, weight] : weights_.weights_)
    if (std::exchange(weight.is_lent, false)) {
      let_go(weight.storage);
      give_back_memory(weight.view);
    }
}

}  // namespace lockstep
