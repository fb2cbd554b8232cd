// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/detail/processor.h"
#include "lockstep/base/detail/sha256.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/transforms.h"
#include "lockstep/numerics/fingerprint.h"
#include "lockstep/parallel/rule.h"
#include "lockstep/trials/profile.h"

namespace lockstep::trials {
namespace {

namespace fs = std::filesystem;

/// Parts of the recipe that change no step's time.
constexpr std::array<std::string_view, 22> kTimeless{
    "init",         "seed",       "examples", "test-examples", "scale-lr",        "epochs",   "steps",  "lr",
    "weight-decay", "beta1",      "beta2",    "eps",           "label-smoothing", "schedule", "warmup", "decay-every",
    "gamma",        "milestones", "power",    "least",         "order",           "tail"};

/// Empty where the user has none.
fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "lockstep";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? fs::path(home) / ".cache" / "lockstep" : fs::path();
}

/// A trainer writes into its configuration with which figures it normalises; before that nobody knows them.
std::string without_figures(const std::string& augment) {
  std::string steps = data::Transforms::parse(augment).to_string();
  constexpr std::string_view name = "normalize";
  const size_t at = steps.find(name);
  if (at == std::string::npos) return steps;
  const size_t begin = at + name.size(), end = std::min(steps.find(',', begin), steps.size());
  return steps.erase(begin, end - begin);
}

bool has_momentum(const run::Config& config) {
  if (config.momentum >= 0) return config.momentum > 0;
  return parallel::number(parallel::make_rule(config.optimizer), "momentum").value_or(0) > 0;
}

/// All that a profile depends on. A configuration says the same before and after a trainer has worked it out.
std::string key_of(run::Config config) {
  config.augment = without_figures(config.augment);
  config.momentum = has_momentum(config) ? 1 : 0;
  if (config.workers < 0) config.workers = 1;  // as on CPUs
  std::string key = text(Fingerprint::of({}).to_string(), "\n", cpu_info().model, ", ", cpu_info().cores, " cores\n");
  for (const char* variable : {"LOCKSTEP_DENSE", "LOCKSTEP_MALLOC"})
    if (const char* value = std::getenv(variable)) key += text(variable, " = ", value, "\n");
  for (const run::Field& field : run::fields_of(config)) {
    const std::string_view name = field.name;
    if (name == "workers" || (field.recipe && std::ranges::count(kTimeless, name) == 0))
      key += text(name, " = ", run::value_text(field), "\n");
  }
  // Two folders may have the same name seen from two places.
  const fs::path place = config.data.substr(config.data.find(':') + 1);
  std::error_code error;
  if (fs::exists(place, error)) key += fs::weakly_canonical(place, error).string();
  return key;
}

}  // namespace

bool Profile::knows(int64_t processes, int64_t threads) const {
  const bool knows_others = std::max(slowdown.passes.size(), slowdown.thread_passes.size()) > 1;
  return (processes == 1 || loopback) && (processes * threads == 1 || cores == 1 || knows_others);
}

fs::path remembered_profile_file(const run::Config& config) {
  fs::path folder = cache_folder();
  if (folder.empty()) return folder;
  const std::string key = key_of(config);
  Sha256 hash;
  hash.update(key.data(), key.size());
  return folder / "profiles" / (hash.hex() + ".json");
}

std::optional<Profile> remembered_profile(const run::Config& config) {
  const fs::path file = remembered_profile_file(config);
  std::error_code error;
  if (file.empty() || !fs::exists(file, error)) return std::nullopt;
  try {
    return read_profile(file);
  } catch (const Error& unreadable) {
    log_debug(unreadable.what(), "; it is as if there were none");
    return std::nullopt;
  }
}

void remember_profile(const run::Config& config, Profile profile) {
  const fs::path file = remembered_profile_file(config);
  if (file.empty()) return;
  if (const auto before = remembered_profile(config)) {
    if (!profile.loopback) profile.loopback = before->loopback;
    if (!profile.knows(1, 2)) {
      profile.slowdown = before->slowdown;
      profile.thread_spread = before->thread_spread;
    }
  }
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  try {
    write_profile(profile, file);
  } catch (const Error& unwritable) {
    log_debug(unwritable.what(), "; the profile is not remembered");
  }
}

}  // namespace lockstep::trials
