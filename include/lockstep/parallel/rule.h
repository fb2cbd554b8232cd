// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/parallel/rules/adagrad.h"
#include "lockstep/parallel/rules/adam.h"
#include "lockstep/parallel/rules/lamb.h"
#include "lockstep/parallel/rules/lars.h"
#include "lockstep/parallel/rules/rmsprop.h"
#include "lockstep/parallel/rules/sgd.h"

/// Update rules: what an optimiser does to a weight, given its gradient. Plain values; `Replica::optimizer` puts one to
/// work. Formulas, names and defaults are torch::optim's where it has the rule. With one replica Sgd gives torch's
/// bits; rules with a square root differ from torch's in the last bit here and there, since torch takes it from MKL,
/// which does not round it correctly (17 % of float32 roots are off by one unit in the last place), and ours does.
///
/// A rule is a struct of numbers in rules/x.h, and src/parallel/optim/rules/x.cpp has its formula. A new one joins the
/// list below and the list of sources. What it says of itself:
/// - `name`, and `usual_lr`: the rate that `lockstep train` takes where none is given;
/// - `numbers()`: its numbers by name, and `check()`, where they depend on each other;
/// - `state_names()`: the tensors that it keeps for each weight, as they are named in checkpoints, and
///   `initial_state()`, where they do not begin as zeros;
/// - `apply()`: updates weights and state;
/// - `ratio()`, where a whole tensor's step is scaled by the norms of its weight and its step, and `prepare()`, where
///   this step is not the gradient and must be computed first.
namespace lockstep::parallel {

using Rule = std::variant<Sgd, Adam, AdamW, RmsProp, Adagrad, Lars, Lamb>;

/// The rules' names, and those of the rules that have this number.
std::vector<std::string> rule_names();
std::vector<std::string> rules_with(std::string_view number);

/// The rule of this name with its defaults. Throws Error where there is none.
Rule make_rule(std::string_view name);
const char* name_of(const Rule& rule);

/// The tensors that a rule keeps for each weight, by torch::optim's names: "momentum_buffer", "exp_avg", ...
std::vector<std::string> state_names(const Rule& rule);

/// A rule's number by its name, a switch as 0 or 1; none where the rule has no such number.
std::optional<double> number(const Rule& rule, std::string_view name);
/// Sets it where the rule has it.
void set_number(Rule& rule, std::string_view name, double value);

double learning_rate(const Rule& rule);
void set_learning_rate(Rule& rule, double lr);
double usual_learning_rate(const Rule& rule);

/// Throws Error, naming the number, where one makes no sense: a negative rate, a beta of 1.
void check(const Rule& rule);

}  // namespace lockstep::parallel
