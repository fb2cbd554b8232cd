// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/random.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/MemoryFormat.h>

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/numerics/detail/fill_taker.h"
#include "numerics/random_fill.h"

namespace lockstep {
namespace {

using namespace detail;

template <class T, class OneDraw>
T one(const OneDraw& draw, uint64_t index) {
  T value;
  fill_range(&value, 0, 1, index, draw);
  return value;
}

BernoulliDraw bernoulli_draw(const char* operation, RandomKey key, double probability) {
  require(probability >= 0 && probability <= 1, operation, "probability is ", probability,
          ", expected a number from 0 to 1");
  return {key, static_cast<uint64_t>(std::llround(probability * 0x1p32))};
}

at::Tensor fill(const char* operation, const at::Tensor& tensor, const Draw& draw, uint64_t offset) {
  require(tensor.defined(), operation, "tensor is undefined");
  require(tensor.is_cpu() || tensor.is_cuda(), operation, "tensor is on ", tensor.device().str(),
          ", expected cpu or cuda");
  // Row-major order is the order of the numbers, whatever the strides.
  const at::NoGradGuard no_grad;
  const bool direct = tensor.is_contiguous();
  const at::Tensor target = direct ? tensor : at::empty(tensor.sizes(), tensor.options().requires_grad(false));
  tensor.is_cuda() ? fill_cuda(target, draw, offset) : fill_cpu(target, draw, offset);
  if (direct)
    tensor.unsafeGetTensorImpl()->bump_version();
  else
    tensor.copy_(target);
  return tensor;
}

thread_local FillTaker* fill_taker = nullptr;

template <class OneDraw>
at::Tensor fill_or_leave(const char* operation, const at::Tensor& tensor, const OneDraw& draw, uint64_t offset) {
  const auto filling = [=](const at::Tensor& later) { fill(operation, later, draw, offset); };
  FillTaker* const taker = FillTaker::current();
  if (taker != nullptr && tensor.defined() &&
      taker->take(tensor, text("lockstep ", operation, ' ', draw.key.seed, ' ', draw.key.stream, ' ', offset), filling))
    return tensor;
  return fill(operation, tensor, draw, offset);
}

}  // namespace

FillTaker* FillTaker::current() noexcept {
  return fill_taker;
}

FillTaker::Scope::Scope(FillTaker& taker) noexcept : outer_(std::exchange(fill_taker, &taker)) {}

FillTaker::Scope::~Scope() {
  fill_taker = outer_;
}

float uniform_float(RandomKey key, uint64_t index) {
  return one<float>(UniformDraw{key}, index);
}
double uniform(RandomKey key, uint64_t index) {
  return one<double>(UniformDraw{key}, index);
}
double normal(RandomKey key, uint64_t index) {
  return one<double>(NormalDraw{key}, index);
}
bool bernoulli(RandomKey key, uint64_t index, double probability) {
  return one<bool>(bernoulli_draw("bernoulli", key, probability), index);
}

// Of the 2^64 values, the first 2^64 mod bound are refused, so that each remainder is left equally often.
uint64_t below(RandomKey key, uint64_t index, uint64_t bound) {
  require(bound > 0, "below", "bound is 0, expected at least 1");
  const uint64_t refused = -bound % bound;
  const PhiloxBlock first = key.block(index);
  for (int half = 0; half < 2; ++half)
    if (first.pair(half) >= refused) return first.pair(half) % bound;
  const RandomKey more = key.fold(index);
  for (uint64_t attempt = 0;; ++attempt) {
    const uint64_t value = more.block(attempt).pair(0);
    if (value >= refused) return value % bound;
  }
}

at::Tensor uniform_(const at::Tensor& tensor, RandomKey key, uint64_t offset) {
  return fill_or_leave("uniform_", tensor, UniformDraw{key}, offset);
}

at::Tensor normal_(const at::Tensor& tensor, RandomKey key, uint64_t offset) {
  return fill_or_leave("normal_", tensor, NormalDraw{key}, offset);
}

at::Tensor bernoulli_(const at::Tensor& tensor, double probability, RandomKey key, uint64_t offset) {
  return fill("bernoulli_", tensor, bernoulli_draw("bernoulli_", key, probability), offset);
}

at::Tensor permutation_(const at::Tensor& tensor, RandomKey key, int64_t size, int64_t offset) {
  const KeyedPermutation permutation(key, size);
  const int64_t count = tensor.defined() ? tensor.numel() : 0;
  require(offset >= 0 && offset <= size && count <= size - offset, "permutation_", "got ", count,
          " numbers from offset ", offset, ", expected them inside a permutation of ", size);
  return fill("permutation_", tensor, PermutationDraw{permutation}, static_cast<uint64_t>(offset));
}

}  // namespace lockstep
