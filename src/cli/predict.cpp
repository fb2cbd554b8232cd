// SPDX-License-Identifier: Apache-2.0
#include "cli/predict.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "cli/model_file.h"
#include "cli/predict_parts.h"
#include "lockstep/base/error.h"
#include "lockstep/data/cloud_files.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/report/format.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

void check(const PredictOptions& options, const data::DatasetInfo& info) {
  for (const auto& file : options.files)
    require(fs::is_regular_file(file), "predict", "'", file, "' is no file, expected an image, a .pt or a cloud");
  const bool labels = !options.out.empty() || !options.labels.empty();
  require(info.voxel > 0 || !(labels || !options.png.empty()), "predict",
          "--out, --labels and --png are for clouds, and the network takes other data");
  require(info.segments() || !labels, "predict",
          "--out and --labels are for a network that labels points, and this one gives a whole cloud one class, so "
          "there are no labels to write, expected --png alone");
}

/// Each file with the places of its own results: those that were named, or under its own name in a folder that was
/// named, as is meant of several files.
std::vector<PredictOptions> file_by_file(const PredictOptions& options, const data::DatasetInfo& info) {
  const auto place = [&](const std::string& named, const std::string& own_name) {
    const bool folder = !named.empty() && (options.files.size() > 1 || fs::is_directory(named));
    require(!folder || !fs::exists(named) || fs::is_directory(named), "predict", "'", named, "' is a file, and ",
            options.files.size(), " files have results, expected a folder for them");
    if (folder) fs::create_directories(named);
    return folder ? (fs::path(named) / own_name).string() : named;
  };
  std::set<fs::path> taken;
  for (const auto& file : options.files) taken.insert(fs::canonical(file));
  PredictOptions of_each = options;
  of_each.files.clear();
  std::vector<PredictOptions> out;
  for (const auto& file : options.files) {
    const std::string stem = fs::path(file).stem().string();
    PredictOptions one = of_each;
    one.files = {file};
    one.out = place(options.out, stem + ".ply");
    one.png = place(options.png, stem + ".png");
    one.labels = place(options.labels, data::label_file_name(file, info));
    for (const auto& target : {one.out, one.png, one.labels})
      require(target.empty() || taken.insert(fs::weakly_canonical(target)).second, "predict", "'", target,
              "' would be written over a file to read or another one's results, expected another place for it");
    out.push_back(std::move(one));
  }
  return out;
}

/// What the network was trained on, or the data that somebody named; opened only where no file describes it.
data::DatasetInfo data_of(const ModelFile& model, const std::string& named) {
  if (named.empty() && model.data) return *model.data;
  run::Config config = model.config;
  if (!named.empty()) config.data = named;
  return train::make_task(config).train->info();
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

/// The answers of all files, told in the files' order, each as soon as those before it are known.
class Answers {
 public:
  Answers(size_t files, bool json) : json_(json), known_(files) {}

  /// Asks about one file after another that nobody else has taken. Any number of threads may; a failure ends it for
  /// all.
  void fill(const std::function<Json(size_t file)>& ask) {
    try {
      for (size_t file = taken_++; file < known_.size(); file = taken_++) tell(file, ask(file));
    } catch (...) {
      taken_ = known_.size();
      throw;
    }
  }

  /// Of all files, where they are wanted as JSON.
  void finish() const {
    if (!json_) return;
    Json all = Json::array();
    for (const auto& answers : known_) all.insert(all.end(), answers->begin(), answers->end());
    std::printf("%s\n", all.dump(2).c_str());
  }

 private:
  void tell(size_t file, Json answers) {
    const std::scoped_lock lock(mutex_);
    known_[file] = std::move(answers);
    for (; told_ < known_.size() && known_[told_] && !json_; ++told_)
      for (const Json& answer : *known_[told_]) std::printf("%s\n", line_of(answer).c_str());
    std::fflush(stdout);
  }

  const bool json_;
  std::atomic<size_t> taken_ = 0;
  std::mutex mutex_;
  std::vector<std::optional<Json>> known_;
  size_t told_ = 0;
};

/// Has each device ask, with the network as it lies there; one file is asked about on all cores at once.
void ask_on(const std::string& devices, size_t files, const train::MakeNetwork& made,
            const std::function<void(models::Classifier&, at::Device)>& ask) {
  const auto slots = parse_devices(devices);
  const auto replicas = static_cast<int64_t>(std::min(files, slots.size()));
  const auto team = parallel::Team::create({.replicas = replicas, .devices = devices});
  if (files == 1 && slots.size() > 1) return ask(*made(), at::kCPU);
  try {
    team.run([&](parallel::Replica& me) { ask(*me.share(made()), me.device()); });
  } catch (const parallel::ReplicaError& error) {
    std::rethrow_exception(error.cause());
  }
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
  const ModelFile model = open_model(options.path, options.model, {});
  const data::DatasetInfo info = data_of(model, options.data);
  check(options, info);
  const auto parts = file_by_file(options, info);
  Answers answers(parts.size(), options.json);
  const auto made = [&, make = train::make_network(model.config, info)] {
    auto network = make();
    models::load_state_dict(*network, model.weights);
    network->eval();
    return network;
  };
  const auto ask = [&](models::Classifier& network, at::Device device) {
    const at::NoGradGuard no_grad;
    const Trained trained{network, device, info, model.config.augment};
    const auto predict_file = info.voxel > 0 ? predict_cloud : predict_inputs;
    answers.fill([&](size_t part) { return predict_file(parts[part].files[0], trained, parts[part]); });
  };
  ask_on(options.devices.empty() ? usual_devices() : options.devices, parts.size(), made, ask);
  answers.finish();
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
  command->add_option("--model", options->model, "The network, where the file holds weights alone");
  command->add_option("--data", options->data, "The data set that names the classes; default: the training's");
  command->add_flag("--json", options->json, "The same as JSON");
  command->callback([options, &chosen] { chosen = [options] { return predict(*options); }; });
}

}  // namespace lockstep::cli
