// SPDX-License-Identifier: Apache-2.0
// Trainings that lose processes at moments that a seed decides, and go on.
//
// A seed that fails is run alone by LOCKSTEP_SEED=NUMBER in the environment; LOCKSTEP_SEEDS says how many are run.
#include <gtest/gtest.h>

#include <cstdio>

#include "lockstep/base/log.h"
#include "simulation/survival.h"
#include "simulation/world/seeds.h"

namespace lockstep::simulation {
namespace {

std::string check(uint64_t seed, SurvivalResult& result) {
  static std::string expected[2][2];
  const SurvivalPlan plan = survival_plan_of(seed);
  std::string& hash = expected[plan.own_loop][plan.batch_norm];
  if (hash.empty()) hash = undisturbed(plan);
  result = survive(seed, plan);
  std::string wrong = result.complaint;
  if (wrong.empty() && !result.hash.empty() && result.hash != hash) wrong = "it ended with other weights";
  return wrong.empty() ? "" : "seed " + std::to_string(seed) + " (" + to_text(plan) + "): " + wrong;
}

TEST(Survival, EndsInTheSameBitsWhoeverIsLost) {
  stay_on_one_core();
  set_log_level(number_in("LOCKSTEP_SEED") ? LogLevel::info : LogLevel::error);
  const uint64_t first = number_in("LOCKSTEP_SEED").value_or(0);
  const uint64_t count = number_in("LOCKSTEP_SEED") ? 1 : number_in("LOCKSTEP_SEEDS").value_or(500);
  int wrong = 0, lost = 0, joined = 0, ends = 0;
  for (uint64_t seed = first; seed < first + count && wrong < 10; ++seed) {
    SurvivalResult result;
    const std::string complaint = check(seed, result);
    EXPECT_EQ(complaint, "");
    wrong += !complaint.empty();
    lost += result.lost;
    joined += result.joined;
    ends += !result.hash.empty();
  }
  std::printf("%llu trainings: %d processes were lost, %d took their places, %d trainings came to their end\n",
              static_cast<unsigned long long>(count), lost, joined, ends);
}

}  // namespace
}  // namespace lockstep::simulation
