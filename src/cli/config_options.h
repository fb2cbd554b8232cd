// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/run/config.h"

namespace CLI {
class App;
}

namespace lockstep::cli {

/// The options of a training run as a command takes them.
struct ConfigOptions {
  run::Config config;
  std::string file;
  std::string preset;
  bool sync_bn = false;
  bool ghost_bn = false;
  std::function<bool(const std::string&)> on_command_line;  // whether an option stands there

  /// The configuration, and which options somebody has set: the command line wins over the file, both over the preset.
  /// Throws Error for what a file or a preset can't say.
  run::Config resolve(std::vector<std::string>& given) const;
};

/// Adds all options of a training run to a command, but for those named. The options must outlive it.
void add_config_options(CLI::App& command, ConfigOptions& options, const std::vector<std::string>& without = {});

/// Adds --model and --set to a command that reads a trained network: they say what a file of weights alone does not.
void add_network_options(CLI::App& command, std::string& model, std::vector<std::string>& set);

}  // namespace lockstep::cli
