// SPDX-License-Identifier: Apache-2.0
// Each rule in one pass over its tensors. The roundings are those of torch::optim's chain of operations: a product that
// ATen adds with a factor (add_ with alpha, addcmul_) is fused where the CPU has FMA, nothing else is.
#include "parallel/optim/cpu/rule_kernel.h"

namespace lockstep::parallel::LOCKSTEP_ISA {
namespace {

#if defined(__FMA__)
inline float add_product(float sum, float a, float b) {
  return __builtin_fmaf(a, b, sum);
}
inline double add_product(double sum, double a, double b) {
  return __builtin_fma(a, b, sum);
}
#else
inline float add_product(float sum, float a, float b) {
  return sum + a * b;
}
inline double add_product(double sum, double a, double b) {
  return sum + a * b;
}
#endif
inline float root(float x) {
  return __builtin_sqrtf(x);
}
inline double root(double x) {
  return __builtin_sqrt(x);
}

// The pointers of a span never overlap.
#define LOCKSTEP_SPAN(T)                            \
  T* __restrict weight = span.weight;               \
  const T* __restrict gradient = span.gradient;     \
  const int64_t count = span.count;                 \
  const T scale = static_cast<T>(n.gradient_scale); \
  const T decay = static_cast<T>(n.weight_decay);   \
  const T step = static_cast<T>(-n.step_size)

template <class T, bool kNesterov>
void sgd_with_momentum(const RuleSpan<T>& span, const RuleNumbers& n) {
  LOCKSTEP_SPAN(T);
  T* __restrict buffer = span.state[0];
  const T momentum = static_cast<T>(n.momentum), share = static_cast<T>(n.one_minus_dampening);
  const bool first = n.first;
  for (int64_t i = 0; i < count; ++i) {
    const T g = add_product(gradient[i] * scale, weight[i], decay);
    const T b = first ? g : add_product(buffer[i] * momentum, g, share);
    buffer[i] = b;
    weight[i] = add_product(weight[i], kNesterov ? add_product(g, b, momentum) : b, step);
  }
}

template <class T>
void sgd(const RuleSpan<T>& span, const RuleNumbers& n) {
  if (n.momentum != 0) return n.nesterov ? sgd_with_momentum<T, true>(span, n) : sgd_with_momentum<T, false>(span, n);
  LOCKSTEP_SPAN(T);
  for (int64_t i = 0; i < count; ++i)
    weight[i] = add_product(weight[i], add_product(gradient[i] * scale, weight[i], decay), step);
}

template <class T, bool kAmsgrad>
void adam_pass(const RuleSpan<T>& span, const RuleNumbers& n) {
  LOCKSTEP_SPAN(T);
  T* __restrict mean = span.state[0];
  T* __restrict square = span.state[1];
  T* __restrict greatest = span.state[2];
  const T keep = static_cast<T>(n.keep), eps = static_cast<T>(n.eps);
  const T beta1 = static_cast<T>(n.beta1), rest1 = static_cast<T>(1 - n.beta1);
  const T beta2 = static_cast<T>(n.beta2), rest2 = static_cast<T>(1 - n.beta2);
  const T root_correction = static_cast<T>(n.root_correction2);
  for (int64_t i = 0; i < count; ++i) {
    const T w = weight[i] * keep;
    const T g = add_product(gradient[i] * scale, w, decay);
    const T m = add_product(mean[i] * beta1, g, rest1);
    const T v = add_product(square[i] * beta2, rest2 * g, g);
    mean[i] = m;
    square[i] = v;
    T most = v;
    if (kAmsgrad) {
      most = greatest[i] > v ? greatest[i] : v;
      greatest[i] = most;
    }
    weight[i] = w + step * m / (root(most) / root_correction + eps);
  }
}

template <class T>
void adam(const RuleSpan<T>& span, const RuleNumbers& n) {
  n.amsgrad ? adam_pass<T, true>(span, n) : adam_pass<T, false>(span, n);
}

template <class T, bool kCentered, bool kMomentum>
void rmsprop_pass(const RuleSpan<T>& span, const RuleNumbers& n) {
  LOCKSTEP_SPAN(T);
  T* __restrict square = span.state[0];
  T* __restrict buffer = span.state[1];
  T* __restrict mean = span.state[2];
  const T alpha = static_cast<T>(n.beta2), rest = static_cast<T>(1 - n.beta2);
  const T momentum = static_cast<T>(n.momentum), eps = static_cast<T>(n.eps);
  for (int64_t i = 0; i < count; ++i) {
    const T g = add_product(gradient[i] * scale, weight[i], decay);
    T v = add_product(square[i] * alpha, rest * g, g);
    square[i] = v;
    if (kCentered) {
      const T m = add_product(mean[i] * alpha, g, rest);
      mean[i] = m;
      v = add_product(v, -m, m);
    }
    const T spread = root(v) + eps;
    if (kMomentum) {
      const T b = buffer[i] * momentum + g / spread;
      buffer[i] = b;
      weight[i] = add_product(weight[i], b, step);
    } else {
      weight[i] = weight[i] + step * g / spread;
    }
  }
}

template <class T>
void rmsprop(const RuleSpan<T>& span, const RuleNumbers& n) {
  if (n.centered) return n.momentum > 0 ? rmsprop_pass<T, true, true>(span, n) : rmsprop_pass<T, true, false>(span, n);
  n.momentum > 0 ? rmsprop_pass<T, false, true>(span, n) : rmsprop_pass<T, false, false>(span, n);
}

template <class T>
void adagrad(const RuleSpan<T>& span, const RuleNumbers& n) {
  LOCKSTEP_SPAN(T);
  T* __restrict sum = span.state[0];
  const T eps = static_cast<T>(n.eps);
  for (int64_t i = 0; i < count; ++i) {
    const T g = add_product(gradient[i] * scale, weight[i], decay);
    const T s = add_product(sum[i], g, g);
    sum[i] = s;
    weight[i] = weight[i] + step * g / (root(s) + eps);
  }
}

template <class T>
void lamb_direction(const RuleSpan<T>& span, const RuleNumbers& n) {
  const T* __restrict weight = span.weight;
  T* __restrict gradient = span.gradient;
  T* __restrict mean = span.state[0];
  T* __restrict square = span.state[1];
  const T scale = static_cast<T>(n.gradient_scale), decay = static_cast<T>(n.weight_decay);
  const T beta1 = static_cast<T>(n.beta1), rest1 = static_cast<T>(1 - n.beta1);
  const T beta2 = static_cast<T>(n.beta2), rest2 = static_cast<T>(1 - n.beta2);
  const T correction1 = static_cast<T>(n.correction1), root_correction2 = static_cast<T>(n.root_correction2);
  const T eps = static_cast<T>(n.eps);
  for (int64_t i = 0; i < span.count; ++i) {
    const T g = gradient[i] * scale;
    const T m = add_product(mean[i] * beta1, g, rest1);
    const T v = add_product(square[i] * beta2, rest2 * g, g);
    mean[i] = m;
    square[i] = v;
    gradient[i] = add_product(m / correction1 / (root(v) / root_correction2 + eps), weight[i], decay);
  }
}

template <class T>
void descend(const RuleSpan<T>& span, const RuleNumbers& n) {
  T* __restrict weight = span.weight;
  const T* __restrict gradient = span.gradient;
  const T step = static_cast<T>(-n.step_size);
  for (int64_t i = 0; i < span.count; ++i) weight[i] = add_product(weight[i], gradient[i], step);
}

// Sixteen sums side by side, so that vectors of any width add in the same order.
template <class T>
double sum_squares(const T* values, int64_t count) {
  constexpr int kLanes = 16;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = static_cast<double>(values[i + lane]);
      sums[lane] += x * x;
    }
  for (int lane = 0; i < count; ++i, ++lane)
    sums[lane] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

}  // namespace

#define LOCKSTEP_DEFINE(T, suffix)                                              \
  void sgd_##suffix(const RuleSpan<T>& span, const RuleNumbers& n) {            \
    sgd<T>(span, n);                                                            \
  }                                                                             \
  void adam_##suffix(const RuleSpan<T>& span, const RuleNumbers& n) {           \
    adam<T>(span, n);                                                           \
  }                                                                             \
  void rmsprop_##suffix(const RuleSpan<T>& span, const RuleNumbers& n) {        \
    rmsprop<T>(span, n);                                                        \
  }                                                                             \
  void adagrad_##suffix(const RuleSpan<T>& span, const RuleNumbers& n) {        \
    adagrad<T>(span, n);                                                        \
  }                                                                             \
  void lamb_direction_##suffix(const RuleSpan<T>& span, const RuleNumbers& n) { \
    lamb_direction<T>(span, n);                                                 \
  }                                                                             \
  void descend_##suffix(const RuleSpan<T>& span, const RuleNumbers& n) {        \
    descend<T>(span, n);                                                        \
  }                                                                             \
  double sum_squares_##suffix(const T* values, int64_t count) {                 \
    return sum_squares<T>(values, count);                                       \
  }

LOCKSTEP_DEFINE(float, float)
LOCKSTEP_DEFINE(double, double)

}  // namespace lockstep::parallel::LOCKSTEP_ISA
