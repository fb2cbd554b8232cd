// SPDX-License-Identifier: Apache-2.0
#include "trials/forecast/placements.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/dataset.h"
#include "lockstep/parallel/split.h"
#include "trials/given.h"
#include "trials/step_times.h"

namespace lockstep::trials {
namespace {

constexpr int64_t kMost = 1 << 16;

bool is_auto(const std::string& split) {
  return split == "auto";
}

int64_t read_count(std::string_view word) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
  return error == std::errc() && end == word.data() + word.size() && count <= kMost ? count : 0;
}

void check_split(const std::string& text, const run::Config& config) {
  if (is_auto(text)) return;
  const parallel::Split split = parallel::parse_split(text);
  require(config.slices % split.sharers == 0, "forecast", "split ", text, " shares ", config.slices, " slices between ",
          split.sharers, " devices, expected a number that they divide, as --slices ", 2 * split.sharers);
}

// Parts are threads or, where these are too few, processes: of dense networks.
bool fits(const std::string& split, int64_t processes, int64_t threads, bool clouds) {
  if (is_auto(split) || split == "data") return true;
  const parallel::Split read = parallel::parse_split(split);
  if (!parallel::parts_are_processes(read, processes, threads)) return read.parts * read.sharers <= threads;
  return !clouds && read.sharers <= threads && processes % read.parts == 0;
}

}  // namespace

Hosts hosts_of(const ForecastOptions& options, int64_t cores) {
  if (options.hosts.empty()) return {.devices = cores};
  const size_t x = options.hosts.find('x');
  const std::string_view text = options.hosts;
  const Hosts hosts{x == std::string::npos ? 0 : read_count(text.substr(0, x)),
                    x == std::string::npos ? 0 : read_count(text.substr(x + 1))};
  require(hosts.hosts > 0 && hosts.devices > 0, "forecast", "--hosts is '", options.hosts,
          "', expected hosts and the devices of each, as 8x128");
  return hosts;
}

ForecastOptions with_defaults(ForecastOptions options) {
  run::Config& config = options.config;
  run::check(config);
  require(!options.devices.empty() && !options.splits.empty(), "forecast",
          "--devices or --splits is empty, expected numbers, as 1,2,4, and splits, as \"data;p2\"");
  for (const int64_t devices : options.devices)
    require(devices >= 1 && devices <= kMost, "forecast", "--devices has ", devices, ", expected 1 to ", kMost);
  require(options.rounds >= 1, "forecast", "--rounds is ", options.rounds, ", expected 1 or more");
  parse_link(options.link, std::nullopt);
  for (const std::string& split : options.splits) check_split(split, config);
  if (config.batch == 0) config.batch = run::usual_batch(data::names_clouds(config.data));
  // A batch that grows with the devices has replicas that do, too: as many for each device as on one.
  const int64_t most = config.scale_batch ? 1 : *std::ranges::max_element(options.devices);
  config.replicas = same_replicas(config, most, config.batch);
  const Hosts hosts = hosts_of(options, cpu_info().cores);
  placements_of(options, hosts);
  return options;
}

std::vector<ForecastRow> placements_of(const ForecastOptions& options, const Hosts& hosts) {
  const run::Config& config = options.config;
  std::vector<ForecastRow> rows;
  for (const int64_t devices : options.devices) {
    const int64_t processes = (devices + hosts.devices - 1) / hosts.devices;
    require(hosts.hosts == 0 || processes <= hosts.hosts, "forecast", "--devices has ", devices, ", and --hosts ",
            options.hosts, " are ", hosts.hosts * hosts.devices, ", expected no more");
    require(devices % processes == 0, "forecast", "--devices has ", devices, ", and a host has ", hosts.devices,
            ", expected a number that fills its hosts evenly");
    const int64_t growth = config.scale_batch ? devices : 1;
    require(processes <= config.replicas * growth, "forecast", devices, " devices are ", processes,
            " processes, and a batch of ", config.batch, " has ", config.replicas,
            " replicas, expected one for each process: raise --batch or --replicas, or let the batch grow "
            "(--scale-batch)");
    for (const std::string& split : options.splits)
      if (fits(split, processes, devices / processes, data::names_clouds(config.data)))
        rows.push_back({.devices = devices,
                        .processes = processes,
                        .threads = devices / processes,
                        .split = split,
                        .replicas = config.replicas * growth,
                        .batch = config.batch * growth});
  }
  require(!rows.empty(), "forecast", "no split fits any number of devices, expected data among --splits");
  return rows;
}

ProfileOptions profile_options(const ForecastOptions& options) {
  const auto rows = placements_of(options, hosts_of(options, cpu_info().cores));
  const bool several = std::ranges::any_of(rows, [](const ForecastRow& row) { return row.processes > 1; });
  const bool together = std::ranges::any_of(rows, [](const ForecastRow& row) { return row.devices > 1; });
  const bool joins = !comm::backends().empty();
  require(joins || !several || options.link != "measure", "forecast",
          "this build has no backend that joins processes, expected a link in words: --link 25gbit:5us");
  ProfileOptions out{.config = options.config,
                     .steps = options.profile_steps,
                     .rounds = options.rounds,
                     .slows = together,
                     .link = several && joins};
  out.config.scale_batch = false;
  return out;
}

}  // namespace lockstep::trials
