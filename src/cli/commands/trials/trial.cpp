// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/trial.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>

#include "cli/commands/commands.h"
#include "lockstep/base/detail/median.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/report/format.h"
#include "lockstep/trials/forecast.h"
#include "lockstep/trials/paced.h"

namespace lockstep::cli {
namespace {

struct TrialCommand {
  std::string profile;
  std::string link = "measure";
  std::string reduce = "canonical";
  int64_t steps = 12;
};

int trial(const TrialCommand& command) {
  require(!command.profile.empty(), "trial", "--paced is missing, expected a file that lockstep forecast --save wrote");
  const comm::Order order = comm::parse_order(command.reduce);
  const trials::Profile profile = trials::read_profile(command.profile);
  const parallel::LinkCost link = trials::parse_link(command.link, profile.loopback);
  const comm::Group group = comm::connect();
  const auto found = trials::run_paced(profile, group, command.steps, order);
  const auto step = trials::forecast_paced(profile, group.size(), link, order);
  if (group.rank() == 0) {
    const double was = median(found.step_seconds);
    std::printf("%d processes that sleep as %s computes: a step forecast %s ms, was %s, %s%s %%; %s MiB sent by each\n",
                group.size(), profile.model.c_str(), report::fixed(1e3 * step.seconds, 1).c_str(),
                report::fixed(1e3 * was, 1).c_str(), was < step.seconds ? "" : "+",
                report::fixed(100 * (was / step.seconds - 1), 1).c_str(),
                report::fixed(static_cast<double>(found.bytes_sent) / (1 << 20), 2).c_str());
    std::fflush(stdout);
  }
  group.finish();
  return 0;
}

}  // namespace

void setup_trial(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<TrialCommand>();
  CLI::App* command = app.add_subcommand(
      "trial", "A step of a process that sleeps for as long as it would compute: lockstep run -n 8 -- lockstep trial");
  command->add_option("--paced", options->profile, "How long: a file of lockstep forecast --save");
  command->add_option("--steps", options->steps, "Steps; default 12, the first three only warm up");
  command->add_option("--reduce", options->reduce, "Order of additions: canonical or ring");
  command->add_option("--link", options->link,
                      "What the forecast beside it takes for the link, as 1gbit:50us; default: as the file has it");
  command->callback([options, &chosen] { chosen = [options] { return trial(*options); }; });
}

}  // namespace lockstep::cli
