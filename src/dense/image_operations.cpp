// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/detail/image_operations.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "dense/image_choice.h"
#include "lockstep/base/error.h"
#include "lockstep/dense/convolution.h"
#include "lockstep/dense/pooling.h"

namespace lockstep::dense {
namespace {

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

// Where there are many channels libtorch's products are as fast, and on small images faster.
bool gains(const at::Tensor& weight, bool strides_by_one) {
  const bool is_point = weight.size(2) * weight.size(3) == 1;
  return is_point ? !strides_by_one : weight.size(1) < 64;
}

bool takes(const at::Tensor& x, const at::Tensor& weight, c10::SymIntArrayRef stride, c10::SymIntArrayRef dilation,
           bool transposed, const c10::SymInt& groups) {
  return !transposed && groups == 1 && all_are(dilation, 1) && dense::takes(x, weight, all_are(stride, 1));
}

std::optional<at::Tensor> try_convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                          c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                          c10::SymIntArrayRef dilation, bool transposed, const c10::SymInt& groups) {
  if (!takes(x, weight, stride, dilation, transposed, groups)) return {};
  return convolution(x, weight, bias, {pair(stride), pair(padding)});
}

std::optional<std::tuple<at::Tensor, at::Tensor, at::Tensor>> try_convolution_backward(
    const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, const c10::SymInt& groups,
    std::array<bool, 3> wanted) {
  if (!takes(x, weight, stride, dilation, transposed, groups) || !is_plain(gradient)) return {};
  return convolution_backward(gradient, x, weight, {pair(stride), pair(padding)}, wanted);
}

std::optional<PoolingOptions> pooling_of(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                                         at::IntArrayRef padding, bool ceil_mode, std::optional<int64_t> divisor) {
  const auto none = [](int64_t pad) { return pad == 0; };
  if (choice() == Choice::libtorch || !is_plain(x) || !is_channels_last(x) || ceil_mode || divisor ||
      !std::ranges::all_of(padding, none))
    return {};
  const at::IntArrayRef step = stride.empty() ? kernel : stride;
  return PoolingOptions{{kernel.front(), kernel.back()}, {step.front(), step.back()}};
}

std::optional<at::Tensor> try_pooling(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                                      at::IntArrayRef padding, bool ceil_mode, std::optional<int64_t> divisor) {
  const auto options = pooling_of(x, kernel, stride, padding, ceil_mode, divisor);
  if (!options) return {};
  return average_pooling(x, *options);
}

std::optional<at::Tensor> try_pooling_backward(const at::Tensor& gradient, const at::Tensor& x, at::IntArrayRef kernel,
                                               at::IntArrayRef stride, at::IntArrayRef padding, bool ceil_mode,
                                               std::optional<int64_t> divisor) {
  const auto options = pooling_of(x, kernel, stride, padding, ceil_mode, divisor);
  if (!options || !is_plain(gradient)) return {};
  return average_pooling_backward(gradient, x.sizes(), *options);
}

}  // namespace

bool takes(const at::Tensor& x, const at::Tensor& weight, bool strides_by_one) {
  if (choice() == Choice::libtorch || !is_plain(x) || !is_plain(weight) || weight.numel() == 0) return false;
  if (!(x.size(1) == 1 || is_channels_last(x) || is_channels_last(weight))) return false;
  return choice() == Choice::own || gains(weight, strides_by_one);
}

const ImageOperations& image_operations() {
  static constexpr ImageOperations kernels{.convolution = try_convolution,
                                           .convolution_backward = try_convolution_backward,
                                           .avg_pool2d = try_pooling,
                                           .avg_pool2d_backward = try_pooling_backward};
  return kernels;
}

}  // namespace lockstep::dense
