// SPDX-License-Identifier: Apache-2.0
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "lockstep/run/weights.h"

namespace lockstep::cli {
namespace {

int hash(const std::vector<std::string>& paths) {
  for (const auto& path : paths) {
    const auto hash = run::hash_of(run::read_weights(path));
    std::printf(paths.size() > 1 ? "%s  %s\n" : "%s\n", hash.c_str(), path.c_str());
  }
  return 0;
}

}  // namespace

void setup_hash(CLI::App& app, Command& chosen) {
  const auto paths = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("hash", "One SHA-256 over a model's weights, however they are stored");
  command->add_option("file", *paths, "Runs' folders, checkpoints, or files of weights, Python's too")->required();
  command->callback([paths, &chosen] { chosen = [paths] { return hash(*paths); }; });
}

}  // namespace lockstep::cli
