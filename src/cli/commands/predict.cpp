// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/prediction.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/config_options.h"
#include "lockstep/base/error.h"
#include "lockstep/report/format.h"
#include "lockstep/run/detail/json.h"

namespace lockstep::cli {
namespace {

using run::Json;

std::string line_of(const train::Prediction& answer) {
  std::string line = answer.file + ":";
  const char* separator = " ";
  const auto add = [&](const std::string& part) { line += std::exchange(separator, ", ") + part; };
  if (answer.points) add(text(*answer.points, " points"));
  for (const auto& [name, count] : answer.classes)
    if (count > 0) add(text(name, " ", count));
  for (const auto& best : answer.likeliest) add(text(best.name, " ", report::fixed(best.probability, 3)));
  if (answer.accuracy) line += "; accuracy " + report::fixed(*answer.accuracy, 4);
  return line;
}

Json json_of(const train::Prediction& answer) {
  Json out{{"file", answer.file}};
  run::put(out, "points", answer.points);
  for (const auto& [name, count] : answer.classes) out["classes"][name] = count;
  run::put(out, "accuracy", answer.accuracy);
  for (const auto& best : answer.likeliest)
    out["predictions"].push_back({{"class", best.name}, {"probability", best.probability}});
  return out;
}

int predict(const train::PredictOptions& options, bool json) {
  const auto print = [&](const train::Prediction& answer) {
    if (json) return;
    std::printf("%s\n", line_of(answer).c_str());
    std::fflush(stdout);
  };
  const auto answers = train::predict(options, print);
  Json all = Json::array();
  for (const auto& answer : answers) all.push_back(json_of(answer));
  if (json) std::printf("%s\n", run::dump_json(all).c_str());
  return 0;
}

}  // namespace

void setup_predict(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<train::PredictOptions>();
  CLI::App* command = app.add_subcommand("predict", "What a trained network makes of images, tensors or clouds");
  command->add_option("checkpoint", options->path, "A run's folder, a checkpoint or a file of weights")->required();
  command
      ->add_option(
          "file", options->files,
          "PNG or JPEG images, .pt files of tensors, or clouds: PLY files, meshes (OFF) after ModelNet, scans (.bin) "
          "after SemanticKITTI and nuScenes")
      ->required();
  command->add_option(
      "--out", options->out,
      "Of a cloud whose points get labels: a PLY file of them, coloured by these; of several clouds, or "
      "where a folder is named, such files in there");
  command->add_option("--labels", options->labels,
                      "The labels alone, as --out, in the form that the data set's benchmark takes: .label after "
                      "SemanticKITTI, _lidarseg.bin after nuScenes, else text with a number a line");
  command->add_option("--png", options->png,
                      "Of a cloud, as --out: a picture of it, from above and in perspective, in the colours of its "
                      "classes");
  command->add_option("--devices", options->devices,
                      "What computes, a file each: 2, cpu:4, cuda:0; default: all cores, or a GPU");
  command->add_option("--top", options->top, "How many answers to each; default 3")->check(CLI::Range(1, 1000));
  add_network_options(*command, options->model, options->set);
  command->add_option("--data", options->data, "The data set that names the classes; default: the training's");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "The same as JSON");
  command->callback([options, json, &chosen] { chosen = [options, json] { return predict(*options, *json); }; });
}

}  // namespace lockstep::cli
