// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/overrides.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/context/detail/batch_norm_mark.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/detail/image_operations.h"
#include "lockstep/context/detail/slices.h"
#include "lockstep/context/draws.h"

// Every operation of libtorch's that we take the place of. Each looks at what its thread knows, or at a mark, and else
// goes on to what libtorch has.

namespace lockstep {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using MaybeTensor = std::optional<at::Tensor>;

/// What an operation runs as below a kernel for BackendSelect.
DispatchKeySet below(DispatchKeySet keys) {
  return keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect);
}

// Random numbers come from the thread's draws.

bool is_optional_generator(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
}

/// The device that an operation draws on: that of its first tensor.
at::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments)
    if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
  return at::kCPU;
}

/// In place of any operation that takes an optional generator: hands it one where none was given.
void give_generator(const c10::OperatorHandle& operation, DispatchKeySet keys, torch::jit::Stack* stack) {
  if (Draws* draws = Draws::current()) {
    const auto& schema = operation.schema().arguments();
    const auto arguments = torch::jit::last(*stack, schema.size());
    for (size_t i = 0; i < schema.size(); ++i)
      if (is_optional_generator(schema[i]) && arguments[i].isNone())
        torch::jit::peek(*stack, i, schema.size()) = draws->next_generator(device_of(arguments));
  }
  operation.redispatchBoxed(below(keys), stack);
}

/// It takes no generator, and on CUDA draws in its own kernel.
std::tuple<at::Tensor, at::Tensor> native_dropout(DispatchKeySet keys, const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (Draws::current() == nullptr || !train.value_or(true))
    return at::_ops::native_dropout::redispatch(below(keys), input, p, train);
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  return {input * mask * (p < 1 ? 1 / (1 - p) : 0.0), mask};
}

/// What is composed of other operations, or has a kernel of its own there (the factories), draws through these in the
/// end.
void override_random_operations(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto operation = dispatcher.findSchema(name);
    if (name.name.rfind("aten::", 0) != 0 || !operation ||
        std::ranges::none_of(operation->schema().arguments(), is_optional_generator))
      continue;
    if (operation->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
        operation->hasKernelForDispatchKey(DispatchKey::BackendSelect))
      continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&give_generator>());
  }
  library.impl("native_dropout", TORCH_FN(native_dropout));
}

// Convolution and pooling go to the kernels that are in charge; a convolution, where the thread has slices, slice by
// slice.

at::Tensor whole_convolution(DispatchKeySet keys, const at::Tensor& x, const at::Tensor& weight,
                             const MaybeTensor& bias, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                             c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
                             c10::SymInt groups) {
  if (const ImageOperations* images = Context::current().images)
    if (const auto y =
            images->convolution(x, weight, bias.value_or(at::Tensor()), stride, padding, dilation, transposed, groups))
      return *y;
  return at::_ops::convolution::redispatch(below(keys), x, weight, bias, stride, padding, dilation, transposed,
                                           output_padding, std::move(groups));
}

LayerGradients whole_convolution_backward(DispatchKeySet keys, const at::Tensor& gradient, const at::Tensor& x,
                                          const at::Tensor& weight, at::OptionalSymIntArrayRef bias_sizes,
                                          c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                          c10::SymIntArrayRef dilation, bool transposed,
                                          c10::SymIntArrayRef output_padding, c10::SymInt groups,
                                          std::array<bool, 3> wanted) {
  if (const ImageOperations* images = Context::current().images)
    if (const auto gradients =
            images->convolution_backward(gradient, x, weight, stride, padding, dilation, transposed, groups, wanted))
      return *gradients;
  return at::_ops::convolution_backward::redispatch(below(keys), gradient, x, weight, bias_sizes, stride, padding,
                                                    dilation, transposed, output_padding, std::move(groups), wanted);
}

/// The slices that a convolution is computed in. Grouped ones are computed as a whole: their groups would be torn.
const Slices* slices_of(const c10::SymInt& groups) {
  return groups == 1 ? Context::current().slices : nullptr;
}

at::MemoryFormat format_of(const at::Tensor& x, const at::Tensor& weight) {
  const at::MemoryFormat format = x.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

at::Tensor convolution(DispatchKeySet keys, const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  const auto compute = [&](const at::Tensor& w, const MaybeTensor& b) {
    return whole_convolution(keys, x, w, b, stride, padding, dilation, transposed, output_padding, groups);
  };
  const Slices* slices = slices_of(groups);
  if (slices == nullptr) return compute(weight, bias);
  const int64_t out = transposed ? 1 : 0;
  const auto parts = slices->each(weight.size(out), [&](Interval part) {
    return compute(narrowed(weight, out, part), narrowed(bias.value_or(at::Tensor()), 0, part));
  });
  return at::cat(parts, 1).contiguous(format_of(x, weight));
}

LayerGradients convolution_backward(DispatchKeySet keys, const at::Tensor& gradient, const at::Tensor& x,
                                    const at::Tensor& weight, at::OptionalSymIntArrayRef bias_sizes,
                                    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                    c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
                                    c10::SymInt groups, std::array<bool, 3> wanted) {
  const auto compute = [&](const at::Tensor& g, const at::Tensor& w, at::OptionalSymIntArrayRef b) {
    return whole_convolution_backward(keys, g, x, w, b, stride, padding, dilation, transposed, output_padding, groups,
                                      wanted);
  };
  const Slices* slices = slices_of(groups);
  if (slices == nullptr) return compute(gradient, weight, bias_sizes);
  const int64_t out = transposed ? 1 : 0;
  const at::MemoryFormat format = format_of(x, weight);
  const auto parts = slices->each(weight.size(out), [&](Interval part) {
    const std::vector<c10::SymInt> channels{part.size()};
    return compute(narrowed(gradient, 1, part).contiguous(format), narrowed(weight, out, part),
                   bias_sizes ? at::OptionalSymIntArrayRef(channels) : bias_sizes);
  });
  return join(parts, out);
}

at::Tensor avg_pool2d(DispatchKeySet keys, const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                      at::IntArrayRef padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  if (const ImageOperations* images = Context::current().images)
    if (const auto y = images->avg_pool2d(x, kernel, stride, padding, ceil_mode, divisor)) return *y;
  return at::_ops::avg_pool2d::redispatch(below(keys), x, kernel, stride, padding, ceil_mode, count_include_pad,
                                          divisor);
}

at::Tensor avg_pool2d_backward(DispatchKeySet keys, const at::Tensor& gradient, const at::Tensor& x,
                               at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding, bool ceil_mode,
                               bool count_include_pad, std::optional<int64_t> divisor) {
  if (const ImageOperations* images = Context::current().images)
    if (const auto dx = images->avg_pool2d_backward(gradient, x, kernel, stride, padding, ceil_mode, divisor))
      return *dx;
  return at::_ops::avg_pool2d_backward::redispatch(below(keys), gradient, x, kernel, stride, padding, ceil_mode,
                                                   count_include_pad, divisor);
}

// A marked batch norm is computed by what its mark says.

at::Tensor batch_norm(const at::Tensor& x, const MaybeTensor& weight, const MaybeTensor& bias,
                      const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training, double momentum,
                      double epsilon, bool cudnn_enabled) {
  if (training) {
    const at::Tensor scale = weight.value_or(at::Tensor()), mean = running_mean.value_or(at::Tensor());
    if (const BatchNormFunction* function = batch_norm_mark(mean.defined() ? mean : scale))
      return (*function)(x, scale, bias.value_or(at::Tensor()), mean, running_var.value_or(at::Tensor()), momentum,
                         epsilon);
  }
  return at::native::batch_norm(x, weight, bias, running_mean, running_var, training, momentum, epsilon, cudnn_enabled);
}

/// The overrides live as long as these do.
std::vector<torch::Library> register_overrides() {
  std::vector<torch::Library> libraries;
  const auto library = [&](DispatchKey key) -> torch::Library& {
    return libraries.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  };
  // BackendSelect lies below autograd, whose formulas see nothing of this, and above every backend.
  torch::Library& select = library(DispatchKey::BackendSelect);
  override_random_operations(select);
  select.impl("convolution", TORCH_FN(convolution));
  select.impl("convolution_backward", TORCH_FN(convolution_backward));
  select.impl("avg_pool2d", TORCH_FN(avg_pool2d));
  select.impl("avg_pool2d_backward", TORCH_FN(avg_pool2d_backward));
  // In place of the composite that libtorch has for every key. Inference mode skips the autograd keys: the plain ones
  // are needed too.
  for (const DispatchKey key :
       {DispatchKey::AutogradCPU, DispatchKey::AutogradCUDA, DispatchKey::CPU, DispatchKey::CUDA})
    library(key).impl("batch_norm", TORCH_FN(batch_norm));
  return libraries;
}

}  // namespace

void install_overrides() {
  static const std::vector<torch::Library> once = register_overrides();
}

}  // namespace lockstep
