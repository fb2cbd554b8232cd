// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/forecast.h"
#include "lockstep/run/config.h"
#include "lockstep/run/metrics.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {

/// What was measured of a training on one device: all that a forecast of other placements needs.
struct Profile {
  std::string processor{};
  int64_t cores = 1;  ///< of the machine that it was measured on
  std::string model{};
  std::string data{};
  int64_t batch = 0;
  int64_t replicas = 1;
  parallel::StepCost cost{};                     ///< of a replica; as long in all as the step that was measured
  parallel::Slowdown slowdown{};                 ///< of threads that compute at once, up to one a core
  std::optional<parallel::LinkCost> loopback{};  ///< between two processes of that machine
  double seconds = 0;                            ///< a step on one device
  double spread = 0;         ///< of it from one round to the next: a standard deviation, as a part of it
  double thread_spread = 0;  ///< the same where threads of one process take a core each
  double jitter = 0;         ///< of a step from one to the next, in the same way: processes wait for the slowest
  int rounds = 1;
  int64_t steps = 12;  ///< of a round: checks make as many
  double peak_mib = 0;
  double replica_mib = 0;  ///< of it, what each replica after the first one adds: its gradients, and holes in the heap
  int64_t examples = 0;    ///< of the training set
  int64_t buffers_bytes = 0;
  bool has_stages = true;  ///< false: the network can't be cut
  bool clouds = false;
  double fixed_part = 0;  ///< of a pass: what does not grow with its share, of clouds

  /// Whether all was measured that a forecast of so many processes and threads needs.
  bool knows(int64_t processes, int64_t threads) const;
};

struct ProfileOptions {
  run::Config config{};  ///< its batch and replicas are what is measured
  /// Of each round. 0: as many as a second and a half has, 12 to 300: a few short steps say nothing about the many.
  int64_t steps = 0;
  int rounds = 3;
  bool slows =
      true;  ///< also on all cores, as trainings in processes and as one on threads: how much they slow each other
  bool link = false;  ///< also the link between two processes of this host
};

struct Measurements;

/// Measures in rounds, so that others can take turns with them. Each round runs in processes of its own; see trial.h
/// for what main() must do. Throws Error and TrialFailed.
class Profiler {
 public:
  explicit Profiler(ProfileOptions options);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// One round; says what it found.
  std::string measure_round();
  /// Of all rounds so far, one or more; measures passes and the link.
  Profile profile() const;

 private:
  ProfileOptions options_;
  std::unique_ptr<Measurements> measured_;
};

/// All rounds of the options, one after another. `on_round` is told what was found. Throws Error and TrialFailed.
Profile measure_profile(const ProfileOptions& options, const std::function<void(const std::string&)>& on_round = {});

/// The link between two processes: of this host, over its loopback, or of those that a launcher starts (Trial).
parallel::LinkCost measure_link(const std::vector<std::string>& launcher = {});

/// Where the time of a step went: on one device, and where it was measured on all cores, of a training in each process
/// and of one training on threads.
struct MeasuredPhases {
  run::Phases one{};
  std::optional<run::Phases> apart{}, threads{};
};

/// What was measured says what a replica costs: the step in `profile.cost` becomes as long as it was. `states`: tensors
/// that the rule keeps for each weight.
void calibrate(Profile& profile, const MeasuredPhases& measured, int64_t states);

/// A profile in a file, for other forecasts. Throws Error where it can't be read or written.
void write_profile(const Profile& profile, const std::filesystem::path& file);
Profile read_profile(const std::filesystem::path& file);

/// Where the profile of a training is remembered, in the user's cache folder ($XDG_CACHE_HOME/lockstep, else
/// ~/.cache/lockstep); empty where there is none. The name is a hash of all that a profile depends on: what of the
/// recipe changes a step's time, processor and cores, the program and torch. Batch and replicas of the configuration
/// must be worked out. Throws Error for transforms that make no sense.
std::filesystem::path remembered_profile_file(const run::Config& config);
/// The one that is there; none, too, where it can't be read or is of another format.
std::optional<Profile> remembered_profile(const run::Config& config);
/// Keeps it for later. What was not measured this time, the link or how threads slow each other, stays as it was. Where
/// nothing can be written nothing is remembered.
void remember_profile(const run::Config& config, Profile profile);

}  // namespace lockstep::trials
