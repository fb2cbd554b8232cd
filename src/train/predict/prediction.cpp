// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/prediction.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <set>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"
#include "lockstep/data/cloud_files.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/replica_error.h"
#include "lockstep/train/model_file.h"
#include "train/predict/parts.h"

namespace lockstep::train {
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
    if (!options.labels.empty()) one.labels = place(options.labels, data::label_file_name(file, info));
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
  return make_task(config).train->info();
}

/// The answers of all files, told in the files' order, each as soon as those before it are known.
class Answers {
 public:
  Answers(size_t files, const std::function<void(const Prediction&)>& tell) : tell_(tell), known_(files) {}

  /// Asks about one file after another that nobody else has taken. Any number of threads may; a failure ends it for
  /// all.
  void fill(const std::function<std::vector<Prediction>(size_t file)>& ask) {
    try {
      for (size_t file = taken_++; file < known_.size(); file = taken_++) tell(file, ask(file));
    } catch (...) {
      taken_ = known_.size();
      throw;
    }
  }

  std::vector<Prediction> all() const {
    std::vector<Prediction> out;
    for (const auto& answers : known_) out.insert(out.end(), answers->begin(), answers->end());
    return out;
  }

 private:
  void tell(size_t file, std::vector<Prediction> answers) {
    const Lock lock(mutex_);
    known_[file] = std::move(answers);
    for (; told_ < known_.size() && known_[told_]; ++told_)
      for (const Prediction& answer : *known_[told_])
        if (tell_) tell_(answer);
  }

  const std::function<void(const Prediction&)>& tell_;
  std::atomic<size_t> taken_ = 0;
  Mutex mutex_;
  std::vector<std::optional<std::vector<Prediction>>> known_;  // mutex_ guards it while threads ask
  size_t told_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

/// Has each device ask, with the network as it lies there; one file is asked about on all cores at once.
void ask_on(const std::string& devices, size_t files, const MakeNetwork& made,
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

std::vector<ClassProbability> likeliest(const at::Tensor& logits, const data::DatasetInfo& info, int64_t top) {
  const auto [values, classes] = logits.softmax(0).topk(std::min(top, logits.size(0)));
  std::vector<ClassProbability> out;
  for (int64_t k = 0; k < values.size(0); ++k)
    out.push_back({info.class_names[classes[k].item<int64_t>()], values[k].item<double>()});
  return out;
}

std::vector<Prediction> predict(const PredictOptions& options,
                                const std::function<void(const Prediction&)>& on_prediction) {
  ModelFile model = open_model(options.path, options.model, {});
  model.config.set.insert(model.config.set.end(), options.set.begin(), options.set.end());
  const data::DatasetInfo info = fit_to_weights(model, data_of(model, options.data));
  check(options, info);
  const auto parts = file_by_file(options, info);
  Answers answers(parts.size(), on_prediction);
  const auto made = [&, make = make_network(model.config, info)] {
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
  return answers.all();
}

}  // namespace lockstep::train
