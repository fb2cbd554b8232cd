// SPDX-License-Identifier: Apache-2.0
#include "parallel/optim/rule_apply.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/max.h>

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

// Only tensors that are neither bias nor norm are scaled by their norms.
bool is_matrix(const at::Tensor& weight) {
  return weight.dim() > 1;
}

void set_adam(RuleNumbers& n, double lr, double beta1, double beta2, double eps, int64_t step) {
  n.beta1 = beta1;
  n.beta2 = beta2;
  n.eps = eps;
  n.root_correction2 = std::sqrt(1 - std::pow(beta2, static_cast<double>(step)));
  n.correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  n.step_size = lr / n.correction1;
}

void fill(RuleNumbers& n, const Sgd& r, int64_t step, const at::Tensor&) {
  n.step_size = r.lr;
  n.weight_decay = r.weight_decay;
  n.momentum = r.momentum;
  n.one_minus_dampening = 1 - r.dampening;
  n.nesterov = r.nesterov;
  n.first = step == 1;
}
void fill(RuleNumbers& n, const Adam& r, int64_t step, const at::Tensor&) {
  set_adam(n, r.lr, r.beta1, r.beta2, r.eps, step);
  n.weight_decay = r.weight_decay;
  n.amsgrad = r.amsgrad;
}
void fill(RuleNumbers& n, const AdamW& r, int64_t step, const at::Tensor&) {
  set_adam(n, r.lr, r.beta1, r.beta2, r.eps, step);
  n.keep = r.weight_decay == 0 ? 1 : 1 - r.lr * r.weight_decay;
  n.amsgrad = r.amsgrad;
}
void fill(RuleNumbers& n, const RmsProp& r, int64_t, const at::Tensor&) {
  n.step_size = r.lr;
  n.beta2 = r.alpha;
  n.eps = r.eps;
  n.weight_decay = r.weight_decay;
  n.momentum = r.momentum;
  n.centered = r.centered;
}
void fill(RuleNumbers& n, const Adagrad& r, int64_t step, const at::Tensor&) {
  n.step_size = r.lr / (1 + static_cast<double>(step - 1) * r.lr_decay);
  n.weight_decay = r.weight_decay;
  n.eps = r.eps;
}
void fill(RuleNumbers& n, const Lars& r, int64_t step, const at::Tensor& weight) {
  n.step_size = r.lr;
  n.momentum = r.momentum;
  n.weight_decay = is_matrix(weight) ? r.weight_decay : 0;
  n.first = step == 1;
}
void fill(RuleNumbers& n, const Lamb& r, int64_t step, const at::Tensor& weight) {
  set_adam(n, r.lr, r.beta1, r.beta2, r.eps, step);
  n.step_size = r.lr;
  n.weight_decay = is_matrix(weight) ? r.weight_decay : 0;
}

template <class T>
RuleSpan<T> span_of(const RuleSlice& slice) {
  RuleSpan<T> span{slice.weight.mutable_data_ptr<T>(), slice.gradient.mutable_data_ptr<T>(), {}, slice.weight.numel()};
  for (size_t k = 0; k < slice.state.size(); ++k)
    span.state[k] = slice.state[k].defined() ? slice.state[k].mutable_data_ptr<T>() : nullptr;
  return span;
}

#define LOCKSTEP_CALL(kernel)                                                                                     \
  (slice.weight.scalar_type() == at::kFloat ? LOCKSTEP_SELECT_ISA(kernel##_float)(span_of<float>(slice), numbers) \
                                            : LOCKSTEP_SELECT_ISA(kernel##_double)(span_of<double>(slice), numbers))

bool has_kernel(const at::Tensor& tensor) {
  return tensor.is_cpu() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
}

// What kernels do, as ATen's operations: for GPUs and 16-bit weights, and what the tests hold the kernels against.
class WithAten {
 public:
  WithAten(const RuleNumbers& numbers, const RuleSlice& slice)
      : n_(numbers), weight_(slice.weight), direction_(slice.gradient), state_(slice.state) {
    gradient_ = n_.gradient_scale == 1 ? slice.gradient : slice.gradient.mul(n_.gradient_scale);
    if (n_.keep != 1) weight_.mul_(n_.keep);
  }

  void operator()(const Sgd&) { momentum(); }
  void operator()(const Lars&) { momentum(); }
  void operator()(const Adam&) { adam(); }
  void operator()(const AdamW&) { adam(); }
  void operator()(const RmsProp&) {
    decay();
    auto spread = state_[0].mul_(n_.beta2).addcmul_(gradient_, gradient_, 1 - n_.beta2);
    if (n_.centered) {
      const auto mean = state_[2].mul_(n_.beta2).add_(gradient_, 1 - n_.beta2);
      spread = spread.addcmul(mean, mean, -1);
    }
    spread = spread.sqrt().add_(n_.eps);
    if (n_.momentum > 0)
      weight_.add_(state_[1].mul_(n_.momentum).addcdiv_(gradient_, spread), -n_.step_size);
    else
      weight_.addcdiv_(gradient_, spread, -n_.step_size);
  }
  void operator()(const Adagrad&) {
    decay();
    state_[0].addcmul_(gradient_, gradient_, 1.0);
    weight_.addcdiv_(gradient_, state_[0].sqrt().add_(n_.eps), -n_.step_size);
  }
  void operator()(const Lamb&) { weight_.add_(direction_, -n_.step_size); }

  void lamb_direction(const at::Tensor& into) {
    moments();
    const auto spread = state_[1].sqrt().div_(n_.root_correction2).add_(n_.eps);
    into.copy_(state_[0].div(n_.correction1).div_(spread).add_(weight_, n_.weight_decay));
  }

 private:
  void decay() {
    if (n_.weight_decay != 0) gradient_ = gradient_.add(weight_, n_.weight_decay);
  }
  void momentum() {
    decay();
    if (n_.momentum != 0) {
      if (n_.first)
        state_[0].copy_(gradient_);
      else
        state_[0].mul_(n_.momentum).add_(gradient_, n_.one_minus_dampening);
      gradient_ = n_.nesterov ? gradient_.add(state_[0], n_.momentum) : state_[0];
    }
    weight_.add_(gradient_, -n_.step_size);
  }
  void moments() {
    state_[0].mul_(n_.beta1).add_(gradient_, 1 - n_.beta1);
    state_[1].mul_(n_.beta2).addcmul_(gradient_, gradient_, 1 - n_.beta2);
  }
  void adam() {
    decay();
    moments();
    if (n_.amsgrad) at::max_out(state_[2], state_[2], state_[1]);
    const auto& square = n_.amsgrad ? state_[2] : state_[1];
    weight_.addcdiv_(state_[0], square.sqrt().div_(n_.root_correction2).add_(n_.eps), -n_.step_size);
  }

  const RuleNumbers& n_;
  at::Tensor weight_;
  at::Tensor direction_;  // LAMB's, as prepare() left it
  at::Tensor gradient_;
  std::array<at::Tensor, 3> state_;
};

}  // namespace

bool needs_norms(const Rule& rule, const at::Tensor& weight) {
  return is_matrix(weight) && (std::holds_alternative<Lars>(rule) || std::holds_alternative<Lamb>(rule));
}

RuleNumbers numbers_of(const Rule& rule, int64_t step, double gradient_scale, const at::Tensor& weight) {
  RuleNumbers numbers;
  numbers.gradient_scale = gradient_scale;
  std::visit([&](const auto& r) { fill(numbers, r, step, weight); }, rule);
  return numbers;
}

RuleNumbers with_norms(const Rule& rule, RuleNumbers numbers, const TensorNorms& norms) {
  const double weight = std::sqrt(norms.weight), direction = std::sqrt(norms.direction);
  if (const auto* lars = std::get_if<Lars>(&rule)) {
    const double gradient = direction * numbers.gradient_scale;
    const double trust =
        weight > 0 && gradient > 0 ? lars->trust * weight / (gradient + lars->weight_decay * weight + lars->eps) : 1;
    numbers.gradient_scale *= trust;
    numbers.weight_decay *= trust;
  }
  if (std::holds_alternative<Lamb>(rule) && weight > 0 && direction > 0) numbers.step_size *= weight / direction;
  return numbers;
}

void prepare(const Rule& rule, const RuleNumbers& numbers, const RuleSlice& slice) {
  if (!std::holds_alternative<Lamb>(rule)) return;
  const at::NoGradGuard no_grad;
  if (has_kernel(slice.weight)) return LOCKSTEP_CALL(lamb_direction);
  WithAten(numbers, slice).lamb_direction(slice.gradient);
}

void apply(const Rule& rule, const RuleNumbers& numbers, const RuleSlice& slice) {
  const at::NoGradGuard no_grad;
  if (!has_kernel(slice.weight)) return std::visit(WithAten(numbers, slice), rule);
  if (std::holds_alternative<Sgd>(rule) || std::holds_alternative<Lars>(rule)) return LOCKSTEP_CALL(sgd);
  if (std::holds_alternative<RmsProp>(rule)) return LOCKSTEP_CALL(rmsprop);
  if (std::holds_alternative<Adagrad>(rule)) return LOCKSTEP_CALL(adagrad);
  if (std::holds_alternative<Lamb>(rule)) return LOCKSTEP_CALL(descend);
  LOCKSTEP_CALL(adam);
}

double sum_squares(const at::Tensor& flat) {
  if (!has_kernel(flat)) return flat.to(at::kDouble).square().sum().item<double>();
  return flat.scalar_type() == at::kFloat
             ? LOCKSTEP_SELECT_ISA(sum_squares_float)(flat.const_data_ptr<float>(), flat.numel())
             : LOCKSTEP_SELECT_ISA(sum_squares_double)(flat.const_data_ptr<double>(), flat.numel());
}

}  // namespace lockstep::parallel
