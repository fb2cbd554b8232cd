// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/verify.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/config_options.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

struct VerifyCommand {
  ConfigOptions config;
  std::string placements;
};

int verify(const VerifyCommand& command) {
  trials::VerifyOptions options{.placements = command.placements};
  options.config = command.config.resolve(options.given);
  options = trials::with_defaults(std::move(options));
  const run::Config& config = options.config;
  std::printf("%s on %s: %ld replicas, %ld steps of batch %ld\n", config.model.c_str(), config.data.c_str(),
              static_cast<long>(config.replicas), static_cast<long>(config.steps), static_cast<long>(config.batch));
  std::string first;
  const auto print = [&](const trials::VerifyRow& row) {
    if (first.empty()) first = row.placement;
    const std::string verdict = row.difference ? text("differs from ", first, ": first in ", row.difference->tensor,
                                                      ", after step ", row.difference->step)
                                               : "identical";
    std::printf("  %-12s %s (%.1f ms a step)\n", row.placement.c_str(), verdict.c_str(), 1e3 * row.seconds_per_step);
    std::fflush(stdout);
  };
  const bool identical = trials::verify(options, print).identical;
  std::printf("%s\n", identical ? "identical" : "not identical");
  return identical ? 0 : 1;
}

}  // namespace

void setup_verify(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<VerifyCommand>();
  CLI::App* command = app.add_subcommand("verify", "Prove that placements end in the same bits: lockstep verify MODEL");
  add_config_options(*command, options->config,
                     {"resume", "out", "devices", "blocks", "split", "audit", "save-every", "check-data"});
  command
      ->add_option("--placements", options->placements,
                   "k threads, PxT processes of threads, a+b+c replicas of each process, and 4:p2 with the network in "
                   "two parts; "
                   "for 8 replicas 1;2;8;2x4;3+3+2")
      ->group("Where it runs");
  command->callback([options, &chosen] { chosen = [options] { return verify(*options); }; });
}

}  // namespace lockstep::cli
