// SPDX-License-Identifier: Apache-2.0
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/run/weights.h"

namespace lockstep::cli {
namespace {

struct ConvertOptions {
  std::string from, to;
};

int convert(const ConvertOptions& options) {
  const std::filesystem::path to = options.to;
  require(to.extension() == ".pt" || to.extension() == ".pth" || archive::is_safetensors(options.to), "convert", "'",
          options.to, "' has another ending, expected .pt, .pth or .safetensors");
  const run::Tensors weights = run::read_weights(options.from);
  run::write_weights(to, weights);
  std::printf("%zu tensors in %s, sha256 %s\n", weights.size(), options.to.c_str(), run::hash_of(weights).c_str());
  return 0;
}

}  // namespace

void setup_convert(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = app.add_subcommand("convert", "Weights in another format: torch's .pt, or .safetensors");
  command->add_option("from", options->from, "A run's folder, a checkpoint, or a file of weights")->required();
  command->add_option("to", options->to, "The file to write; its ending names the format")->required();
  command->callback([options, &chosen] { chosen = [options] { return convert(*options); }; });
}

}  // namespace lockstep::cli
