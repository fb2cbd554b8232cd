// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/model_file.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/run/weights.h"

namespace lockstep::train {
namespace {

bool is_checkpoint_file(const std::string& path) {
  return run::is_checkpoint(archive::read_tensor_file(path));
}

ModelFile from_weights(const std::filesystem::path& file, const std::string& model) {
  ModelFile out;
  out.weights = run::read_weights(file);
  const auto config = file.parent_path() / "config.toml";
  if (std::filesystem::exists(config))
    run::read_toml_file(out.config, config.string());
  else
    require(!model.empty(), "open_model", "'", file.string(),
            "' holds weights alone and has no config.toml beside it, expected the network's name too: --model NAME");
  return out;
}

}  // namespace

ModelFile open_model(const std::string& path, const std::string& model, const comm::Group& group) {
  require(std::filesystem::exists(path), "open_model", "'", path,
          "' is not there, expected a run's folder, a checkpoint or a file of weights");
  const bool folder = std::filesystem::is_directory(path);
  ModelFile out;
  if (folder || is_checkpoint_file(path)) {
    const auto checkpoint = fetch_checkpoint(path, group);
    if (checkpoint) {
      run::read_toml(out.config, checkpoint->config, path);
      require(!model.empty() || checkpoint->model == out.config.model, "open_model", "'", path, "' is of the network '",
              checkpoint->model,
              "' of somebody's own program, expected one that this program knows; if it is one of these: --model NAME");
      out.weights = checkpoint->weights;
      out.data = checkpoint->data;
    } else {
      out = from_weights(std::filesystem::path(path) / "weights.pt", model);
    }
  } else {
    out = from_weights(path, model);
  }
  if (!model.empty()) out.config.model = model;
  out.config.resume.clear();
  out.config.out.clear();
  out.config.devices.clear();
  out.config.init = "default";
  return out;
}

ModelFigures evaluate_model(const EvaluateOptions& options, const comm::Group& group) {
  ModelFile model = open_model(options.path, options.model, group);
  run::Config& config = model.config;
  if (!options.data.empty()) config.data = options.data;
  config.devices = options.devices;
  if (options.batch > 0) config.evaluate_batch = options.batch;
  if (options.replicas > 0) config.replicas = options.replicas;
  config.examples = config.test_examples = options.examples;
  Task task = make_task(config);
  if (options.subset == data::Subset::train) task.test = task.train;
  const data::DatasetInfo& info = task.train->info();
  require(info.segments() || !options.figures.points, "evaluate",
          "--points is for clouds whose points have a class each, and ", info.name, " has others");
  Figures figures = options.figures;
  figures.confusion |= info.segments();
  return {evaluate(config, task, model.weights, group, figures), task.test->info()};
}

}  // namespace lockstep::train
