// SPDX-License-Identifier: Apache-2.0
// What the kernels of all rules have in common. A rule's source is compiled once as it is, and once an instruction set
// with LOCKSTEP_ISA defined, for its kernel alone.
#pragma once

#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"

namespace lockstep::parallel {

/// A run of elements of one tensor, its reduced gradient and the rule's state. They never overlap.
template <class T>
struct RuleElements {
  T* weight;
  T* gradient;
  T* state[3];
  int64_t count;
};

/// Declares the kernel `name`, which takes elements and the rule's numbers for them, for all instruction sets.
#define LOCKSTEP_RULE_KERNEL(name, Numbers)                                           \
  LOCKSTEP_DECLARE_ISA(void name##_float(const RuleElements<float>&, const Numbers&)) \
  LOCKSTEP_DECLARE_ISA(void name##_double(const RuleElements<double>&, const Numbers&))

}  // namespace lockstep::parallel

#ifdef LOCKSTEP_ISA
// The roundings are those of torch::optim's chain of operations: a product that ATen adds with a factor (add_ with
// alpha, addcmul_) is fused where the CPU has FMA, nothing else is.
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

}  // namespace
}  // namespace lockstep::parallel::LOCKSTEP_ISA

/// Defines the kernel from a template of the same name, in namespace lockstep::parallel.
#define LOCKSTEP_DEFINE_RULE_KERNEL(name, Numbers)                      \
  namespace LOCKSTEP_ISA {                                              \
  void name##_float(const RuleElements<float>& e, const Numbers& n) {   \
    name<float>(e, n);                                                  \
  }                                                                     \
  void name##_double(const RuleElements<double>& e, const Numbers& n) { \
    name<double>(e, n);                                                 \
  }                                                                     \
  }

/// What all rules read.
#define LOCKSTEP_RULE_ELEMENTS(T)                   \
  T* __restrict weight = e.weight;                  \
  const T* __restrict gradient = e.gradient;        \
  const int64_t count = e.count;                    \
  const T scale = static_cast<T>(n.gradient_scale); \
  const T decay = static_cast<T>(n.weight_decay);   \
  const T step = static_cast<T>(-n.step_size)
#endif
