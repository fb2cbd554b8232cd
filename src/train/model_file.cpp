// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/model_file.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/models/registry.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/run/weights.h"

namespace lockstep::train {
namespace {

bool is_checkpoint_file(const std::string& path) {
  return run::is_checkpoint(archive::read_tensor_file(path));
}

/// How many classes the weights give, where their shapes are the network's but for that number; 0 where they are not.
int64_t classes_of(const run::Tensors& weights, const models::StateDict& own, int64_t classes) {
  int64_t found = 0;
  for (const auto& [name, tensor] : own) {
    const auto given = weights.find(name);
    if (given == weights.end() || !given->second.defined()) continue;
    at::IntArrayRef want = tensor.sizes(), got = given->second.sizes();
    while (got.size() > want.size() && got[0] == 1) got = got.slice(1);
    if (got.size() != want.size()) return 0;
    for (size_t d = 0; d < got.size(); ++d) {
      if (got[d] == want[d]) continue;
      if (want[d] != classes || (found != 0 && found != got[d])) return 0;
      found = got[d];
    }
  }
  return found == 0 ? classes : found;
}

bool is_set(const run::Config& config, const std::string& setting) {
  return std::ranges::any_of(config.set, [&](const auto& word) { return word.starts_with(setting + "="); });
}

void name_classes(data::DatasetInfo& info, int64_t classes) {
  info.classes = classes;
  info.class_names.resize(std::min<size_t>(info.class_names.size(), classes));
  while (static_cast<int64_t>(info.class_names.size()) < classes)
    info.class_names.push_back(text(info.class_names.size()));
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
  out.names_network = model.empty();
  out.config.resume.clear();
  out.config.out.clear();
  out.config.devices.clear();
  out.config.init = "default";
  return out;
}

data::DatasetInfo fit_to_weights(ModelFile& model, data::DatasetInfo info) {
  // A checkpoint says what its network is, and for which data: for such data it is made as it was.
  if (model.names_network && model.data && model.data->input_shape == info.input_shape &&
      model.data->classes == info.classes)
    return info;
  std::vector<run::Config> attempts{model.config};
  const auto registry = models::builtin();
  for (const auto& setting : registry.find(model.config.model).settings) {
    if (setting.name != "stem" || is_set(model.config, setting.name)) continue;
    for (const char* stem : {"stem=small", "stem=imagenet"}) {
      attempts.push_back(model.config);
      attempts.back().set.emplace_back(stem);
    }
  }
  for (const auto& attempt : attempts) {
    const auto own = models::state_dict(*make_network(attempt, info)());
    if (const int64_t classes = classes_of(model.weights, own, info.classes); classes > 0) {
      model.config.set = attempt.set;
      if (classes != info.classes) name_classes(info, classes);
      break;
    }
  }
  return info;  // where none fits, loading the weights says what differs
}

ModelFigures evaluate_model(const EvaluateOptions& options, const comm::Group& group) {
  ModelFile model = open_model(options.path, options.model, group);
  model.config.set.insert(model.config.set.end(), options.set.begin(), options.set.end());
  run::Config& config = model.config;
  if (!options.data.empty()) config.data = options.data;
  config.devices = options.devices;
  config.split = options.split;
  if (options.batch > 0) config.evaluate_batch = options.batch;
  if (options.replicas > 0) config.replicas = options.replicas;
  config.examples = config.test_examples = options.examples;
  Task task = make_task(config);
  if (options.subset == data::Subset::train) task.test = task.train;
  const data::DatasetInfo& info = task.train->info();
  const data::DatasetInfo fitted = fit_to_weights(model, info);
  require(fitted.classes >= info.classes, "evaluate", "'", options.path, "' gives ", fitted.classes, " classes, and ",
          info.name, " has ", info.classes, ", expected data with no more classes than the network");
  task.network = make_network(config, fitted);
  require(info.segments() || !options.figures.points, "evaluate",
          "--points is for clouds whose points have a class each, and ", info.name, " has others");
  Figures figures = options.figures;
  figures.confusion |= info.segments();
  return {evaluate(config, task, model.weights, group, figures), task.test->info()};
}

}  // namespace lockstep::train
