// SPDX-License-Identifier: Apache-2.0
// What the kernels of all rules have in common. A rule's source is compiled once as it is, and once an instruction set
// with LOCKSTEP_ISA defined, for its kernel alone. For GPUs optim/cuda/rules.cu includes it so.
#pragma once

#include <cstdint>

#include "lockstep/base/detail/instruction_set.h"
#include "lockstep/numerics/detail/portable.h"

namespace lockstep::parallel {

/// A run of elements of one tensor, its reduced gradient and the rule's state. They never overlap.
template <class T>
struct RuleElements {
  T* weight;
  T* gradient;
  T* state[3];
  int64_t count;
};

struct RuleTable;  // optim/rule_batch.h

/// Declares the kernel `name`, which takes elements and the rule's numbers for them, for all instruction sets; and
/// its launches on a GPU, for many tensors at once.
#define LOCKSTEP_RULE_KERNEL(name, Numbers)                                             \
  LOCKSTEP_DECLARE_ISA(void name##_float(const RuleElements<float>&, const Numbers&))   \
  LOCKSTEP_DECLARE_ISA(void name##_double(const RuleElements<double>&, const Numbers&)) \
  namespace on_gpu {                                                                    \
  void name##_float(const RuleTable&);                                                  \
  void name##_double(const RuleTable&);                                                 \
  }

}  // namespace lockstep::parallel

#ifdef LOCKSTEP_ISA
// The roundings are those of torch::optim's chain of operations: a product that ATen adds with a factor (add_ with
// alpha, addcmul_) is fused where the CPU has FMA, as GPUs do, nothing else is.
namespace lockstep::parallel::LOCKSTEP_ISA {
namespace {

#if defined(LOCKSTEP_RULES_ON_GPU)
template <class T>
LOCKSTEP_HOST_DEVICE T add_product(T sum, T a, T b) {
  return portable::multiply_add(a, b, sum);
}
LOCKSTEP_HOST_DEVICE inline float root(float x) {
  return ::sqrtf(x);
}
LOCKSTEP_HOST_DEVICE inline double root(double x) {
  return ::sqrt(x);
}
#else
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
#endif

}  // namespace
}  // namespace lockstep::parallel::LOCKSTEP_ISA

/// Defines the kernel from a template of the same name, in namespace lockstep::parallel.
#if defined(LOCKSTEP_RULES_ON_GPU)
#define LOCKSTEP_DEFINE_RULE_KERNEL(name, Numbers)                                           \
  namespace LOCKSTEP_ISA {                                                                   \
  struct name##_of_elements {                                                                \
    template <class T>                                                                       \
    LOCKSTEP_HOST_DEVICE void operator()(const RuleElements<T>& e, const Numbers& n) const { \
      name<T>(e, n);                                                                         \
    }                                                                                        \
  };                                                                                         \
  void name##_float(const RuleTable& table) {                                                \
    launch_rows<float, Numbers, name##_of_elements>(table);                                  \
  }                                                                                          \
  void name##_double(const RuleTable& table) {                                               \
    launch_rows<double, Numbers, name##_of_elements>(table);                                 \
  }                                                                                          \
  }
#else
#define LOCKSTEP_DEFINE_RULE_KERNEL(name, Numbers)                      \
  namespace LOCKSTEP_ISA {                                              \
  void name##_float(const RuleElements<float>& e, const Numbers& n) {   \
    name<float>(e, n);                                                  \
  }                                                                     \
  void name##_double(const RuleElements<double>& e, const Numbers& n) { \
    name<double>(e, n);                                                 \
  }                                                                     \
  }
#endif

/// What all rules read.
#define LOCKSTEP_RULE_ELEMENTS(T)                   \
  T* __restrict weight = e.weight;                  \
  const T* __restrict gradient = e.gradient;        \
  const int64_t count = e.count;                    \
  const T scale = static_cast<T>(n.gradient_scale); \
  const T decay = static_cast<T>(n.weight_decay);   \
  const T step = static_cast<T>(-n.step_size)
#endif
