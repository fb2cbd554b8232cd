// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parallel/rule.h"

#include <bit>
#include <cmath>

#include "lockstep/base/error.h"
#include "parallel/optim/rule_apply.h"

namespace lockstep::parallel {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // clang deduces none for an aggregate before its version 17

struct Number {
  const char* name;
  double value;
  double from;
  double below;  // exclusive
};

constexpr double kAny = std::numeric_limits<double>::infinity();

Number rate(double lr) {
  return {"lr", lr, 0, kAny};
}
Number decay(double value) {
  return {"weight_decay", value, 0, kAny};
}
Number eps(double value) {
  return {"eps", value, 0, kAny};
}
Number beta(const char* name, double value) {
  return {name, value, 0, 1};
}
Number momentum(double value) {
  return {"momentum", value, 0, kAny};
}

std::vector<Number> numbers(const Rule& rule) {
  return std::visit(
      Overloaded{
          [](const Sgd& r) -> std::vector<Number> {
            return {rate(r.lr),
                    momentum(r.momentum),
                    {"dampening", r.dampening, -kAny, kAny},
                    decay(r.weight_decay),
                    {"nesterov", double(r.nesterov), 0, 2}};
          },
          [](const RmsProp& r) -> std::vector<Number> {
            return {rate(r.lr),           {"alpha", r.alpha, 0, kAny},           eps(r.eps), decay(r.weight_decay),
                    momentum(r.momentum), {"centered", double(r.centered), 0, 2}};
          },
          [](const Adagrad& r) -> std::vector<Number> {
            return {rate(r.lr),
                    {"lr_decay", r.lr_decay, 0, kAny},
                    decay(r.weight_decay),
                    {"initial_accumulator_value", r.initial_accumulator_value, 0, kAny},
                    eps(r.eps)};
          },
          [](const Lars& r) -> std::vector<Number> {
            return {rate(r.lr), momentum(r.momentum), decay(r.weight_decay), {"trust", r.trust, 0, kAny}, eps(r.eps)};
          },
          [](const Lamb& r) -> std::vector<Number> {
            return {rate(r.lr), beta("beta1", r.beta1), beta("beta2", r.beta2), eps(r.eps), decay(r.weight_decay)};
          },
          [](const auto& r) -> std::vector<Number> {  // Adam, AdamW
            return {rate(r.lr), beta("beta1", r.beta1), beta("beta2", r.beta2),
                    eps(r.eps), decay(r.weight_decay),  {"amsgrad", double(r.amsgrad), 0, 2}};
          }},
      rule);
}

}  // namespace

const char* name_of(const Rule& rule) {
  constexpr const char* names[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lars", "lamb"};
  static_assert(std::size(names) == std::variant_size_v<Rule>);
  return names[rule.index()];
}

std::vector<std::string> state_names(const Rule& rule) {
  using Names = std::vector<std::string>;
  return std::visit(
      Overloaded{[](const Sgd& r) { return r.momentum != 0 ? Names{"momentum_buffer"} : Names{}; },
                 [](const Lars& r) { return r.momentum != 0 ? Names{"momentum_buffer"} : Names{}; },
                 [](const RmsProp& r) {
                   // A slot of its own for each, so that a kernel finds it without counting.
                   if (r.centered) return Names{"square_avg", "momentum_buffer", "grad_avg"};
                   return r.momentum > 0 ? Names{"square_avg", "momentum_buffer"} : Names{"square_avg"};
                 },
                 [](const Adagrad&) { return Names{"sum"}; },
                 [](const Lamb&) {
                   return Names{"exp_avg", "exp_avg_sq"};
                 },
                 [](const auto& r) {
                   return r.amsgrad ? Names{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"} : Names{"exp_avg", "exp_avg_sq"};
                 }},
      rule);
}

double learning_rate(const Rule& rule) {
  return std::visit([](const auto& r) { return r.lr; }, rule);
}

void set_learning_rate(Rule& rule, double lr) {
  std::visit([lr](auto& r) { r.lr = lr; }, rule);
  check(rule);
}

void check(const Rule& rule) {
  for (const Number& number : numbers(rule)) {
    require(std::isfinite(number.value) && number.value >= number.from && number.value < number.below, name_of(rule),
            number.name, " is ", number.value, ", expected a finite number of at least ", number.from,
            number.below < kAny ? " and below " : "", number.below < kAny ? text(number.below) : std::string());
  }
  if (const auto* sgd = std::get_if<Sgd>(&rule))
    require(!sgd->nesterov || (sgd->momentum > 0 && sgd->dampening == 0), "sgd", "nesterov with momentum ",
            sgd->momentum, " and dampening ", sgd->dampening, ", expected a momentum and no dampening");
}

bool operator==(const Rule& a, const Rule& b) {
  if (a.index() != b.index()) return false;
  const auto left = numbers(a), right = numbers(b);
  for (size_t i = 0; i < left.size(); ++i)
    if (left[i].value != right[i].value) return false;
  return true;
}

uint32_t hash_of(std::span<const Rule> rules) {
  uint32_t hash = 2166136261;  // FNV-1a
  const auto add = [&](uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ static_cast<uint8_t>(value >> 8 * byte)) * 16777619;
  };
  for (const Rule& rule : rules) {
    add(rule.index());
    for (const Number& number : numbers(rule)) add(std::bit_cast<uint64_t>(number.value));
  }
  return hash;
}

}  // namespace lockstep::parallel
