// SPDX-License-Identifier: Apache-2.0
#include "cli/predict.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "cli/model_file.h"
#include "cli/predict_parts.h"
#include "lockstep/core/error.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/report/format.h"

namespace lockstep::cli {
namespace {

void check(const PredictOptions& options, const data::DatasetInfo& info) {
  for (const auto& file : options.files)
    require(std::filesystem::is_regular_file(file), "predict", "'", file,
            "' is no file, expected an image, a .pt or a cloud");
  const bool writes = !options.out.empty() || !options.png.empty();
  require(info.voxel > 0 || !writes, "predict", "--out and --png are for clouds, and the network takes other data");
  require(options.files.size() == 1 || !writes, "predict", "--out and --png are for one file, got ",
          options.files.size());
  require(info.segments() || options.out.empty(), "predict",
          "--out is for a network that labels points, and this one gives a whole cloud one class, so there are no "
          "labels to write, expected --png alone");
}

std::string line_of(const Json& answer) {
  std::string line = answer["file"].get<std::string>() + ":";
  const char* separator = " ";
  const auto add = [&](const std::string& part) { line += std::exchange(separator, ", ") + part; };
  if (answer.contains("points")) add(text(answer["points"].get<int64_t>(), " points"));
  if (answer.contains("classes"))
    for (const auto& [name, count] : answer["classes"].items())
      if (count.get<int64_t>() > 0) add(text(name, " ", count.get<int64_t>()));
  if (answer.contains("predictions"))
    for (const auto& best : answer["predictions"])
      add(text(best["class"].get<std::string>(), " ", report::fixed(best["probability"], 3)));
  if (answer.contains("accuracy")) line += "; accuracy " + report::fixed(answer["accuracy"], 4);
  return line;
}

}  // namespace

Json likeliest(const at::Tensor& logits, const data::DatasetInfo& info, int64_t top) {
  const auto [values, classes] = logits.softmax(0).topk(std::min(top, logits.size(0)));
  Json out = Json::array();
  for (int64_t k = 0; k < values.size(0); ++k)
    out.push_back({{"class", info.class_names[classes[k].item<int64_t>()]}, {"probability", values[k].item<double>()}});
  return out;
}

int predict(const PredictOptions& options) {
  ModelFile model = open_model(options.path, options.model, {});
  if (!options.data.empty()) model.config.data = options.data;
  const auto task = train::make_task(model.config);
  const auto& info = task.train->info();
  check(options, info);
  const auto network = task.network();
  models::load_state_dict(*network, model.weights);
  network->eval();
  const at::NoGradGuard no_grad;
  const Trained trained{*network, *task.train, model.config.augment};
  const auto predict_file = info.voxel > 0 ? predict_cloud : predict_inputs;
  Json answers = Json::array();
  for (const auto& file : options.files)
    for (auto& answer : predict_file(file, trained, options)) answers.push_back(std::move(answer));
  if (options.json) {
    std::printf("%s\n", answers.dump(2).c_str());
    return 0;
  }
  for (const auto& answer : answers) std::printf("%s\n", line_of(answer).c_str());
  return 0;
}

void setup_predict(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* command = app.add_subcommand("predict", "What a trained network makes of images, tensors or clouds");
  command->add_option("checkpoint", options->path, "A run's folder, a checkpoint or a file of weights")->required();
  command
      ->add_option(
          "file", options->files,
          "PNG or JPEG images, .pt files of tensors, or clouds: PLY files, meshes (OFF) after ModelNet, scans (.bin) "
          "after SemanticKITTI and nuScenes")
      ->required();
  command->add_option("--out", options->out,
                      "Of a cloud whose points get labels: a PLY file of them, coloured by these");
  command->add_option("--png", options->png,
                      "Of a cloud: a picture of it, from above and in perspective, in the colours of its classes");
  command->add_option("--top", options->top, "How many answers to each; default 3")->check(CLI::Range(1, 1000));
  command->add_option("--model", options->model, "The network, where the file holds weights alone");
  command->add_option("--data", options->data, "The data set that names the classes; default: the training's");
  command->add_flag("--json", options->json, "The same as JSON");
  command->callback([options, &chosen] { chosen = [options] { return predict(*options); }; });
}

}  // namespace lockstep::cli
