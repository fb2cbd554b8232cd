// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

/// Update rules: what an optimiser does to a weight, given its gradient. Plain values; `Replica::optimizer` puts one to
/// work. Formulas, names and defaults are torch::optim's where it has the rule. With one replica Sgd gives torch's
/// bits; rules with a square root differ from torch's in the last bit here and there, since torch takes it from MKL,
/// which does not round it correctly (17 % of float32 roots are off by one unit in the last place), and ours does.
namespace lockstep::parallel {

struct Sgd {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

struct Adam {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
};

/// Adam whose weight decay does not pass through the moments.
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
};

struct RmsProp {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};

struct Adagrad {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
};

/// SGD whose rate is scaled for each tensor by trust * |w| / (|g| + weight_decay * |w|) (You, Gitman, Ginsburg 2017).
/// Tensors of one dimension or none (biases, norms) take neither the scale nor the decay.
struct Lars {
  double lr = 1e-1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double trust = 1e-3;
  double eps = 1e-8;
};

/// Adam whose step u (weight decay included) is scaled for each tensor by |w| / |u| (You et al. 2019). Tensors of one
/// dimension or none take neither the scale nor the decay.
struct Lamb {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 1e-2;
};

using Rule = std::variant<Sgd, Adam, AdamW, RmsProp, Adagrad, Lars, Lamb>;

/// "sgd", "adam", "adamw", "rmsprop", "adagrad", "lars", "lamb"
const char* name_of(const Rule& rule);

/// The tensors that a rule keeps for each weight, by torch::optim's names: "momentum_buffer", "exp_avg", ...
std::vector<std::string> state_names(const Rule& rule);

double learning_rate(const Rule& rule);
void set_learning_rate(Rule& rule, double lr);

/// Throws Error, naming the number, where one makes no sense: a negative rate, a beta of 1.
void check(const Rule& rule);

/// Whether two rules have the same kind and numbers.
bool operator==(const Rule& a, const Rule& b);

}  // namespace lockstep::parallel
