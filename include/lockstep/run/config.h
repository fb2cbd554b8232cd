// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::run {

/// All that a training run can be told: every option of `lockstep train`, by the same names. A value with sensible
/// defaults; `Config config{.batch = 128, .epochs = 5}` is a whole one.
struct Config {
  // The network and how it begins.
  std::string model = "lenet";
  std::vector<std::string> set = {};  // settings of the network: "width=0.5"
  std::string init = "default";       // a way to begin (models/init.h), or a file of weights
  uint64_t seed = 0;

  // The data.
  std::string data = "fashion-mnist";
  std::string augment = "none";  // data/transforms.h
  std::string order = "shuffled";
  std::string tail = "exact";
  int64_t image_size = 224;
  double voxel = 0.05;        // the side of a voxel of clouds, in metres
  int64_t examples = 0;       // only the first so many of the training set; 0: all
  int64_t test_examples = 0;  // and of the test set

  // The batch and its division.
  int64_t batch = 0;     // 0: see usual_batch()
  int64_t replicas = 0;  // 0: see default_replicas()
  int64_t accumulate = 1;
  bool scale_batch = false;
  std::string scale_lr = "none";

  // How long.
  int64_t epochs = 10;
  int64_t steps = 0;  // stop after so many updates; 0: no such limit

  // The optimiser.
  std::string optimizer = "sgd";
  double lr = 0;         // 0: the optimiser's usual one
  double momentum = -1;  // -1: the optimiser's usual one
  bool nesterov = false;
  double weight_decay = -1;  // -1: the optimiser's usual one
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = -1;  // -1: the optimiser's usual one
  double clip = 0;
  double clip_value = 0;
  double label_smoothing = 0;

  // The learning rate over time.
  std::string schedule = "constant";
  double warmup = 0;                    // epochs
  double decay_every = 1;               // epochs, of `step`
  double gamma = 0.1;                   // of `step` and `multi-step`
  std::vector<double> milestones = {};  // epochs, of `multi-step`
  double power = 1;                     // of `polynomial`
  double least = 0;                     // of `cosine` and `polynomial`, as a factor of lr

  // Arithmetic.
  std::string batch_norm = "ghost";
  std::string amp = "none";
  std::string memory_format = "auto";
  std::string reduce = "canonical";
  int64_t slices = 1;  // S, in which convolutions are computed

  // Where it runs, and what it leaves behind: no part of the recipe.
  std::string devices = "";
  std::string split = "data";        // parallel/split.h
  std::vector<int64_t> blocks = {};  // how many replicas each process runs; empty: as even as can be
  std::string out = "";
  std::string resume = "";
  int64_t save_every = 0;
  int64_t audit = 0;        // updates; 0: never
  int64_t copy_every = 10;  // updates, where a lost process ends nothing
  int64_t log_every = 0;
  int64_t evaluate_every = 1;
  int64_t evaluate_batch = 0;  // 0: 1024 examples, or one cloud a replica
  int64_t workers = -1;        // -1: 1, and for a GPU a process's cores, 8 at most
  std::string cache = "";      // a folder that keeps clouds ready
  bool check_data = false;
  bool tensorboard = true;
  bool curves = true;
  bool quiet = false;
};

/// Whether `init` is a file of weights or a run's folder: it has a '/', or ends in .pt, .pth or .safetensors.
bool begins_with_file(const Config& config);

/// One option: how it is called, what it is for, and the place of its value in a Config.
struct Field {
  const char* name;   // "weight-decay", on the command line and in files
  const char* group;  // the heading it stands under in --help
  std::string help;
  bool recipe;                       // whether it is part of the recipe, so of what decides the result
  std::vector<std::string> choices;  // what a text may be; empty: anything
  std::variant<std::string*, int64_t*, uint64_t*, double*, bool*, std::vector<std::string>*, std::vector<double>*,
               std::vector<int64_t>*>
      value;
};

/// All options, in the order of --help. The pointers are into the config.
std::vector<Field> fields_of(Config& config);

/// A field's value as TOML.
std::string value_text(const Field& field);

/// The whole configuration as TOML, which read_toml() gives back.
std::string to_toml(const Config& config);

/// The lines of that which decide the result.
std::string recipe_toml(const Config& config);

/// Sets what the text has (`name = value`, strings, numbers, booleans, arrays, comments) and returns the names that it
/// had. Throws Error with `where` and the line for anything else, with the nearest name for an unknown one.
std::vector<std::string> read_toml(Config& config, const std::string& text, const std::string& where);
/// The same of a file.
std::vector<std::string> read_toml_file(Config& config, const std::string& file);

/// Throws Error for what makes no sense whatever the data is: an unknown choice (with the nearest), a batch of 0.
void check(const Config& config);

/// The values of a preset for all options that `given` does not name. "best": an initialisation, optimiser, schedule
/// and augmentation that reach a good accuracy in 20 epochs. Throws Error for an unknown one.
void apply_preset(Config& config, const std::string& preset, const std::vector<std::string>& given);

/// The batch where nobody says: 256 examples, or 8 clouds.
int64_t usual_batch(bool clouds);

/// R where nobody says: on CPUs 8, on GPUs the power of two that covers the devices of all processes; on both no more
/// than there are examples in a batch.
int64_t default_replicas(bool cuda, int64_t devices, int64_t batch);

}  // namespace lockstep::run
