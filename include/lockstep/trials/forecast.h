// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/parallel/forecast.h"
#include "lockstep/run/config.h"
#include "lockstep/run/metrics.h"
#include "lockstep/trials/profile.h"

namespace lockstep::trials {

struct ForecastOptions {
  run::Config config{};
  /// The names of values of the configuration that count as set although they are the usual ones.
  std::vector<std::string> given{};
  std::vector<int64_t> devices{1, 2, 4, 8};
  /// "8x128": hosts and the devices of each. Empty: as many devices a host as this machine has cores.
  std::string hosts{};
  std::vector<std::string> splits{"data"};  ///< of the devices of a host; "auto": the fastest
  /// "25gbit:5us": rate and latency, and behind another colon what a message more takes. "measure": hosts are processes
  /// of this machine.
  std::string link{"measure"};
  int rounds = 3;
  int64_t profile_steps = 0;  ///< of each round; 0: as ProfileOptions has it
  /// Words before which a check starts its processes, one behind another: see Trial.
  std::vector<std::string> launcher{};
};

/// The options with all that nobody has set worked out. Throws Error for what makes no sense.
ForecastOptions with_defaults(ForecastOptions options);

/// Bytes a second of a rate in words, as 100mbit (kbit, mbit, gbit, tbit); none where they are something else.
std::optional<double> parse_rate(std::string_view text);
/// A link in words, as ForecastOptions has it. `measured` gives what the words leave open. Throws Error.
parallel::LinkCost parse_link(std::string_view text, const std::optional<parallel::LinkCost>& measured);

/// A placement and what its step will take.
struct ForecastRow {
  int64_t devices = 1;
  int64_t processes = 1;
  int64_t threads = 1;
  std::string split{"data"};  ///< never "auto"
  bool chosen = false;        ///< for "auto"
  int64_t replicas = 1;
  int64_t batch = 0;
  parallel::StepForecast step{};
  double low = 0;  ///< seconds; four of five measurements are expected between them
  double high = 0;
  double speedup = 1;  ///< in examples a second, over one device
  double ideal = 1;
  double memory_mib = 0;  ///< of the process that needs most
  /// Bytes a second of a link with which it is as fast as the best placement on one host. None where nothing travels,
  /// and where no link is fast enough (infinite).
  std::optional<double> break_even{};
  double training_seconds = 0;  ///< of all updates, without evaluations
  bool best = false;
  std::vector<std::string> notes{};

  // Where it was run.
  std::optional<double> measured{};
  double measured_spread = 0;  ///< of its rounds: a standard deviation, as a part of it
  std::optional<run::Phases> measured_phases{};
  std::optional<double> measured_mib{};

  double device_hours() const { return training_seconds / 3600 * static_cast<double>(devices); }
  bool holds() const { return measured && low <= *measured && *measured <= high; }
};

struct ForecastResult {
  Profile profile{};
  parallel::LinkCost link{};
  std::vector<ForecastRow> rows{};
};

/// What the options need of a profile: its batch, replicas, and whether links are measured.
ProfileOptions profile_options(const ForecastOptions& options);

/// Forecasts all placements. Nothing is run but, of clouds, a process that looks up the coming shares. Throws Error for
/// a profile of another training.
ForecastResult forecast(const ForecastOptions& options, const Profile& profile);

/// The placement that a training has, with its configuration as worked out: processes of one host, and their threads.
/// Throws Error for a profile of another training.
ForecastRow forecast_of(const run::Config& config, int64_t processes, int64_t threads, const Profile& profile);

/// Whether this machine can run a row's placement, a core for each device.
bool can_check(const ForecastRow& row, const ForecastOptions& options);
/// Runs those rows that this machine can, in rounds, so that others can take turns with them. See trial.h for what
/// main() must do. Rows of one placement are run once.
class Checker {
 public:
  /// `steps` of each round: as many as the profile was measured with, so that clouds have the same sizes.
  Checker(const ForecastResult& result, const ForecastOptions& options, int64_t steps);
  ~Checker();
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// `on_trial` gets a line for each trial. Throws Error and TrialFailed.
  void measure_round(const std::function<void(const std::string&)>& on_trial = {});
  /// What was measured so far comes into the rows.
  void fill(ForecastResult& result) const;

 private:
  struct Placed;
  std::vector<Placed> placed_;
};

/// All rounds of the options, one after another.
void check(ForecastResult& result, const ForecastOptions& options,
           const std::function<void(const std::string&)>& on_round = {});

/// The forecast's phases as measurements have them.
run::Phases phases_of(const parallel::StepForecast& step);
/// "forecast 51.2 ms [49.9, 52.8], was 52.0, +1.6 %"
std::string verdict(double forecast, double low, double high, double was);
/// The phase that differs most from its forecast, where the step is not within its interval; else empty.
std::string phase_that_was_off(const ForecastRow& row);

}  // namespace lockstep::trials
