// SPDX-License-Identifier: Apache-2.0
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>

#include "cli/commands/commands.h"
#include "lockstep/launch/launcher.h"

namespace lockstep::cli {

void setup_run(CLI::App& app, Command& chosen, const std::vector<std::string>& program) {
  const auto options = std::make_shared<launch::Options>();
  CLI::App* command =
      app.add_subcommand("run", "Start a run's processes: lockstep run -n N [OPTIONS] -- PROGRAM [ARGS...]");
  command->footer(
      "Each process finds its place in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.\n"
      "Ends with 0, or with the exit code of the first rank that failed (128 + signal where one killed it).\n"
      "Several hosts: the same command on each, with its own --rank-offset:\n"
      "  a$ lockstep run -n 4 --hosts a,b --rank-offset 0 -- ./train\n"
      "  b$ lockstep run -n 4 --hosts a,b --rank-offset 4 -- ./train");
  command->add_option("-n,--processes", options->processes, "How many processes to start on this host")->required();
  command->add_option("--hosts", options->hosts, "All hosts of the run, rank 0's first: names or addresses")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--rank-offset", options->rank_offset, "The rank of this host's first process");
  command->add_option("--world-size", options->world_size, "Processes on all hosts; default: -n on each of --hosts");
  command->add_option(
      "--port", options->port,
      "Where the first of several hosts is found; with --survive the next port is used too; default 29511");
  command->add_option("--timeout", options->timeout,
                      "Seconds an operation may wait for another rank (LOCKSTEP_TIMEOUT)");
  command->add_option("--grace", options->grace,
                      "Seconds between SIGTERM and SIGKILL when a rank has failed; default 5");
  command->add_flag("--survive", options->survive,
                    "A rank that a signal kills ends nothing: the others go on in place, with the same result");
  command->add_flag("--respawn", options->respawn, "With --survive: a new process takes a lost one's place");
  command->add_option("--least", options->least,
                      "With --survive: fewer ranks end the run with a checkpoint, and with exit code 75; default 1");
  command->add_option("--restarts", options->restarts,
                      "How often a run that has failed is started again, from its newest checkpoint; default 0");
  command->add_flag("--no-prefix", options->no_prefix, "Let the ranks write to this terminal as they are");
  command->callback([options, &chosen, &program] {
    options->program = program;
    chosen = [options] { return launch::run(*options); };
  });
}

}  // namespace lockstep::cli
