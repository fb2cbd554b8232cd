// SPDX-License-Identifier: Apache-2.0
// What all rules can be asked, whatever their kind.
#include "lockstep/parallel/rule.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/base/error.h"
#include "parallel/optim/rules/rule_slice.h"

namespace lockstep::parallel {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

// Every rule once, with its defaults.
template <size_t... kIndices>
std::vector<Rule> all_of(std::index_sequence<kIndices...>) {
  return {Rule(std::in_place_index<kIndices>)...};
}
std::vector<Rule> all_rules() {
  return all_of(std::make_index_sequence<std::variant_size_v<Rule>>());
}

std::vector<RuleNumber> numbers_in(Rule& rule) {
  return std::visit([](auto& r) { return r.numbers(); }, rule);
}

double value_of(const RuleNumber& number) {
  return std::visit([](const auto* place) { return static_cast<double>(*place); }, number.place);
}

}  // namespace

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const Rule& rule : all_rules()) names.push_back(name_of(rule));
  return names;
}

std::vector<std::string> rules_with(std::string_view number_name) {
  std::vector<std::string> names;
  for (const Rule& rule : all_rules())
    if (number(rule, number_name)) names.push_back(name_of(rule));
  return names;
}

Rule make_rule(std::string_view name) {
  for (const Rule& rule : all_rules())
    if (name_of(rule) == name) return rule;
  fail("make_rule", "no rule is named '", name, "'");
}

const char* name_of(const Rule& rule) {
  return std::visit([](const auto& r) { return r.name; }, rule);
}

std::vector<std::string> state_names(const Rule& rule) {
  return std::visit([](const auto& r) { return r.state_names(); }, rule);
}

std::optional<double> number(const Rule& rule, std::string_view name) {
  Rule copy = rule;
  for (const RuleNumber& number : numbers_in(copy))
    if (number.name == name) return value_of(number);
  return std::nullopt;
}

void set_number(Rule& rule, std::string_view name, double value) {
  for (const RuleNumber& number : numbers_in(rule))
    if (number.name == name) std::visit([value](auto* place) { *place = value; }, number.place);
}

double learning_rate(const Rule& rule) {
  return std::visit([](const auto& r) { return r.lr; }, rule);
}

void set_learning_rate(Rule& rule, double lr) {
  std::visit([lr](auto& r) { r.lr = lr; }, rule);
  check(rule);
}

double usual_learning_rate(const Rule& rule) {
  return std::visit([](const auto& r) { return r.usual_lr; }, rule);
}

void check(const Rule& rule) {
  Rule copy = rule;
  for (const RuleNumber& number : numbers_in(copy)) {
    const double value = value_of(number);
    require(std::isfinite(value) && value >= number.from && value < number.below, name_of(rule), number.name, " is ",
            value, ", expected a finite number of at least ", number.from, number.below < kAny ? " and below " : "",
            number.below < kAny ? text(number.below) : std::string());
  }
  std::visit(
      [](const auto& r) {
        if constexpr (requires { r.check(); }) r.check();
      },
      rule);
}

uint32_t hash_of(std::span<const Rule> rules) {
  uint32_t hash = 2166136261;  // FNV-1a
  const auto add = [&](uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ static_cast<uint8_t>(value >> 8 * byte)) * 16777619;
  };
  for (Rule rule : rules) {
    add(rule.index());
    for (const RuleNumber& number : numbers_in(rule)) add(std::bit_cast<uint64_t>(value_of(number)));
  }
  return hash;
}

}  // namespace lockstep::parallel
