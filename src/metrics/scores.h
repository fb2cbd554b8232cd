// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

// What is read of scores and targets, checked and on the CPU. All throw Error, naming `operation`.
namespace lockstep::metrics {

/// Whole numbers as int64; `what` names them in messages.
at::Tensor labels_of(const char* operation, const char* what, const at::Tensor& labels);

/// Scores as float64 [examples, classes], one row a target.
at::Tensor rows_of_scores(const char* operation, const at::Tensor& scores, const at::Tensor& targets);

/// The class with the largest score. A NaN is the lowest of all; of equal scores the lower class wins.
int64_t best_of(std::span<const double> scores);

/// How many classes come before the target in that order.
int64_t rank_of(std::span<const double> scores, int64_t target);

void check_class(const char* operation, const char* what, int64_t number, int64_t classes);

}  // namespace lockstep::metrics
