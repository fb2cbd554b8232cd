// SPDX-License-Identifier: Apache-2.0
// A step of training on processes that are threads, with delays, stalls, partitions and crashes that a seed decides.
//
// A seed that fails is run alone by LOCKSTEP_SEED=NUMBER in the environment; LOCKSTEP_SEEDS says how many are run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "simulation/experiment.h"
#include "simulation/world/seeds.h"

namespace lockstep::simulation {
namespace {

// The same recipe in one process.
const std::string& expected_of(const Recipe& recipe) {
  static std::map<Recipe, std::string> known;
  std::string& hash = known[recipe];
  if (hash.empty()) hash = train(recipe, comm::Group(), {}, 1);
  return hash;
}

std::string check(uint64_t seed, Result* kept = nullptr) {
  const Plan plan = plan_of(seed);
  const Result result = run(seed, plan);
  if (kept != nullptr) *kept = result;
  const std::string wrong = complaint(plan, result, expected_of(plan.recipe));
  return wrong.empty() ? "" : "seed " + std::to_string(seed) + " (" + to_text(plan) + "): " + wrong;
}

TEST(Simulation, KeepsThePromiseWhateverHappens) {
  stay_on_one_core();
  if (const auto alone = number_in("LOCKSTEP_SEED")) {
    const uint64_t seed = *alone;
    std::printf("%s\n", to_text(plan_of(seed)).c_str());
    Result result;
    EXPECT_EQ(check(seed, &result), "");
    for (size_t p = 0; p < result.endings.size(); ++p)
      std::printf("process %zu%s: %s%s, at %.6f s\n", p, result.dead.contains(static_cast<int>(p)) ? " (dead)" : "",
                  result.endings[p].hash.c_str(), result.endings[p].error.c_str(),
                  static_cast<double>(result.endings[p].when) / kSecond);
    return;
  }
  const uint64_t seeds = number_in("LOCKSTEP_SEEDS").value_or(10000);
  int wrong = 0, lost = 0, failed = 0;
  int64_t messages = 0;
  for (uint64_t seed = 0; seed < seeds && wrong < 10; ++seed) {
    Result result;
    const std::string complaint = check(seed, &result);
    EXPECT_EQ(complaint, "");
    wrong += !complaint.empty();
    lost += !result.dead.empty();
    failed += std::ranges::any_of(result.endings, [](const Ending& ending) { return !ending.error.empty(); });
    messages += result.messages;
  }
  std::printf("%llu seeds, %lld messages: %d runs lost a process, %d ended with errors that name it\n",
              static_cast<unsigned long long>(seeds), static_cast<long long>(messages), lost, failed);
}

TEST(Simulation, RepeatsASeedExactly) {
  stay_on_one_core();
  for (const uint64_t seed : {3, 4, 5, 6, 7, 8, 9, 10}) {
    const Plan plan = plan_of(seed);
    const Result first = run(seed, plan), second = run(seed, plan);
    EXPECT_EQ(first.trace, second.trace) << seed;
    EXPECT_NE(first.trace, run(seed + 1, plan).trace) << seed;
  }
}

}  // namespace
}  // namespace lockstep::simulation
