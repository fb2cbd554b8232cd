// SPDX-License-Identifier: Apache-2.0
// The lockstep program. Here, and only here, an error becomes an exit code: 2 for a caller's mistake, 1 for a failure.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <exception>
#include <iostream>

#include "cli/commands/commands.h"
#include "lockstep/base/allocator.h"
#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/numerics/fingerprint.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/trials/trial.h"

namespace lockstep::cli {
namespace {

// What stands after the first "--" is for the program that `run` or `doctor` starts.
struct Arguments {
  std::vector<std::string> own;
  std::vector<std::string> program;
};

Arguments split(int argc, char** argv) {
  std::vector<std::string> all(argv + 1, argv + argc);
  const auto dashes = std::find(all.begin(), all.end(), "--");
  return {{all.begin(), dashes}, {dashes == all.end() ? dashes : dashes + 1, all.end()}};
}

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// One line for what no option or command took.
[[noreturn]] void reject_extra(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  const CLI::App& at = commands.empty() ? app : *commands[0];
  const std::string word = app.remaining(true).front();
  const std::string who = commands.empty() ? "" : at.get_name() + ": ";
  if (word[0] == '-')
    throw Error(text(who, "unknown option '", word, "'", did_you_mean(word.substr(0, word.find('=')), options_of(at))));
  if (commands.empty())
    throw Error(text("unknown command '", word, "', expected one of those in 'lockstep --help'",
                     did_you_mean(word, names_of(app))));
  throw Error(
      text(who, "unexpected argument '", word, "'", at.get_name() == "run" ? ", expected -- before the program" : ""));
}

int parse_and_run(int argc, char** argv) {
  const Arguments arguments = split(argc, argv);
  Command chosen;
  CLI::App app{"Trains one model on many devices, with the same bits on one or on many.", "lockstep"};
  app.set_version_flag("--version", text("lockstep ", version()));
  app.allow_extras();
  setup_run(app, chosen, arguments.program);
  setup_doctor(app, chosen, arguments.program);
  setup_train(app, chosen);
  setup_evaluate(app, chosen);
  setup_predict(app, chosen);
  setup_hash(app, chosen);
  setup_convert(app, chosen);
  setup_report(app, chosen);
  setup_verify(app, chosen);
  setup_compare(app, chosen);
  setup_forecast(app, chosen);
  setup_speedup(app, chosen);
  setup_sweep(app, chosen);
  setup_trial(app, chosen);
  setup_info(app, chosen);
  setup_selftest(app, chosen);
  setup_completion(app, chosen);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) command->allow_extras();
  try {
    app.parse(std::vector<std::string>(arguments.own.rbegin(), arguments.own.rend()));
  } catch (const CLI::Success& request) {  // --help and --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    if (app.remaining_size(true) > 0) reject_extra(app);
    const auto commands = app.get_subcommands();
    const std::string command = commands.empty() ? "" : commands[0]->get_name();
    throw Error(text(command, command.empty() ? "" : ": ", error.what(), " (see 'lockstep ", command,
                     command.empty() ? "" : " ", "--help')"));
  }
  if (app.remaining_size(true) > 0) reject_extra(app);
  if (!chosen) {
    std::cerr << app.help();
    return 2;
  }
  return chosen();
}

// Whether what a replica threw is a caller's mistake.
bool is_mistake(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

int fail_with(int code, const char* what) {
  std::cerr << "lockstep: " << what << '\n';
  return code;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  using namespace lockstep;
  try {
    tune_allocator();  // both must come before anything else computes
    pin_numerics();
    if (trials::serve()) return 0;
    return cli::parse_and_run(argc, argv);
  } catch (const Error& error) {
    return cli::fail_with(2, error.what());
  } catch (const parallel::ReplicaError& error) {
    return cli::fail_with(cli::is_mistake(error.cause()) ? 2 : 1, error.what());
  } catch (const trials::TrialFailed& error) {
    return cli::fail_with(error.exit_code(), error.what());
  } catch (const launch::StartError& error) {
    return cli::fail_with(error.exit_code(), error.what());
  } catch (const std::exception& error) {
    return cli::fail_with(1, error.what());
  }
}
