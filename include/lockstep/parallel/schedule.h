// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

/// Learning rates over time, as factors of the initial rate: `optimizer.schedule(cosine(total))`. Values; functions of
/// the number of updates made so far, so that a resumed run goes on where it was.
namespace lockstep::parallel {

using Schedule = std::function<double(int64_t step)>;

Schedule constant();
/// gamma^k after k times `every` steps.
Schedule step_decay(int64_t every, double gamma = 0.1);
/// gamma^k once k of the milestones (ascending) have passed.
Schedule multi_step(std::vector<int64_t> milestones, double gamma = 0.1);
/// From 1 to `least` along half a cosine over `total` steps, then `least`.
Schedule cosine(int64_t total, double least = 0);
/// From 1 to `least` as (1 - step / total)^power, then `least`.
Schedule polynomial(int64_t total, double power = 1, double least = 0);
/// From `from` to 1 over the first `steps` steps in a straight line, then `after`, which begins with its own step 0
/// there.
Schedule warm_up(int64_t steps, Schedule after, double from = 0);

/// How the rate grows with the batch.
enum class ScaleRule : uint8_t { none, linear, square_root };

/// The factor for a batch `k` times as large: k (Goyal et al. 2017) or its root. Throws Error when k <= 0.
double scale_with(double k, ScaleRule rule);

}  // namespace lockstep::parallel
