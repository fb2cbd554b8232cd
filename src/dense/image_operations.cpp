// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/scope.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/dense/convolution.h"
#include "lockstep/dense/pooling.h"

namespace lockstep::dense {
namespace {

thread_local bool in_scope = false;

enum class Choice : uint8_t { automatic, libtorch, own };

Choice choice() {
  static const Choice made = [] {
    const char* text = std::getenv("LOCKSTEP_DENSE");
    const std::string_view asked = text == nullptr ? "" : text;
    if (asked.empty() || asked == "auto") return Choice::automatic;
    if (asked == "libtorch") return Choice::libtorch;
    require(asked == "own", "LOCKSTEP_DENSE", "got '", asked, "', expected auto, libtorch or own");
    return Choice::own;
  }();
  return made;
}

/// What an operation runs as below this file's kernels.
c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
}

bool all_are(c10::SymIntArrayRef values, int64_t value) {
  for (const c10::SymInt& v : values)
    if (v.maybe_as_int() != value) return false;
  return true;
}

std::array<int64_t, 2> pair(c10::SymIntArrayRef values) {
  return {values.front().expect_int(), values.back().expect_int()};
}

bool is_plain(const at::Tensor& x) {
  return x.defined() && x.dim() == 4 && x.layout() == at::kStrided && x.is_cpu() && x.scalar_type() == at::kFloat &&
         !x.is_neg();
}

// An image of one channel says nothing of its format.
bool is_channels_last(const at::Tensor& x) {
  return x.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

bool in_charge() {
  return in_scope && choice() != Choice::libtorch;
}

// Where there are many channels libtorch's products are as fast, and on small images faster.
bool gains(const at::Tensor& weight, c10::SymIntArrayRef stride) {
  const bool is_point = weight.size(2) * weight.size(3) == 1;
  return is_point ? !all_are(stride, 1) : weight.size(1) < 64;
}

bool takes(const at::Tensor& x, const at::Tensor& weight, c10::SymIntArrayRef stride, c10::SymIntArrayRef dilation,
           bool transposed, const c10::SymInt& groups) {
  if (!in_charge() || transposed || groups != 1 || !is_plain(x) || !is_plain(weight) || weight.numel() == 0)
    return false;
  if (!all_are(dilation, 1) || !(x.size(1) == 1 || is_channels_last(x) || is_channels_last(weight))) return false;
  return choice() == Choice::own || gains(weight, stride);
}

at::Tensor convolution(c10::DispatchKeySet keys, const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                       c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
                       c10::SymInt groups) {
  if (takes(x, weight, stride, dilation, transposed, groups))
    return dense::convolution(x, weight, bias.value_or(at::Tensor()), {pair(stride), pair(padding)});
  return at::_ops::convolution::redispatch(below(keys), x, weight, bias, stride, padding, dilation, transposed,
                                           output_padding, std::move(groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    c10::DispatchKeySet keys, const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
    at::OptionalSymIntArrayRef bias_sizes, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> wanted) {
  if (takes(x, weight, stride, dilation, transposed, groups) && is_plain(gradient))
    return dense::convolution_backward(gradient, x, weight, {pair(stride), pair(padding)}, wanted);
  return at::_ops::convolution_backward::redispatch(below(keys), gradient, x, weight, bias_sizes, stride, padding,
                                                    dilation, transposed, output_padding, std::move(groups), wanted);
}

std::optional<PoolingOptions> pooling_of(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                                         at::IntArrayRef padding, bool ceil_mode, std::optional<int64_t> divisor) {
  const auto none = [](int64_t pad) { return pad == 0; };
  if (!in_charge() || !is_plain(x) || !is_channels_last(x) || ceil_mode || divisor ||
      !std::ranges::all_of(padding, none))
    return {};
  const at::IntArrayRef step = stride.empty() ? kernel : stride;
  return PoolingOptions{{kernel.front(), kernel.back()}, {step.front(), step.back()}};
}

at::Tensor avg_pool2d(c10::DispatchKeySet keys, const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                      at::IntArrayRef padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  if (const auto options = pooling_of(x, kernel, stride, padding, ceil_mode, divisor))
    return average_pooling(x, *options);
  return at::_ops::avg_pool2d::redispatch(below(keys), x, kernel, stride, padding, ceil_mode, count_include_pad,
                                          divisor);
}

at::Tensor avg_pool2d_backward(c10::DispatchKeySet keys, const at::Tensor& gradient, const at::Tensor& x,
                               at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding, bool ceil_mode,
                               bool count_include_pad, std::optional<int64_t> divisor) {
  if (const auto options = pooling_of(x, kernel, stride, padding, ceil_mode, divisor); options && is_plain(gradient))
    return average_pooling_backward(gradient, x.sizes(), *options);
  return at::_ops::avg_pool2d_backward::redispatch(below(keys), gradient, x, kernel, stride, padding, ceil_mode,
                                                   count_include_pad, divisor);
}

// BackendSelect lies below autograd, whose formulas see nothing of this, and above every backend.
TORCH_LIBRARY_IMPL(aten, BackendSelect, library) {
  library.impl("convolution", TORCH_FN(convolution));
  library.impl("convolution_backward", TORCH_FN(convolution_backward));
  library.impl("avg_pool2d", TORCH_FN(avg_pool2d));
  library.impl("avg_pool2d_backward", TORCH_FN(avg_pool2d_backward));
}

}  // namespace

Scope::Scope() noexcept : outer_(std::exchange(in_scope, true)) {}

Scope::~Scope() {
  in_scope = outer_;
}

}  // namespace lockstep::dense
