// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/config.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "lockstep/archive/tensor_file.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/rule.h"
#include "lockstep/parallel/split.h"
#include "run/toml.h"

namespace lockstep::run {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return out;
}

void check_choice(const Field& field) {
  const auto* value = std::get_if<std::string*>(&field.value);
  if (value == nullptr || field.choices.empty() || std::ranges::count(field.choices, **value) > 0) return;
  fail("train", field.name, " is '", **value, "', expected ", joined(field.choices),
       did_you_mean(**value, field.choices));
}

void check_range(const char* name, double value, double least, double most) {
  require(std::isfinite(value) && value >= least && value <= most, "train", name, " is ", value, ", expected ",
          most < 1e15 || value > most ? text(least, " to ", most) : text(least, " or more"));
}

// An option that the update rule or the schedule does not look at would be of no effect, and nobody would know.
void check_uses(const Config& config) {
  const Config usual;
  const auto check_use = [](const std::string& chosen, const char* name, bool is_set,
                            const std::vector<std::string>& users) {
    require(!is_set || std::ranges::count(users, chosen) > 0, "train", name, " is set, and ", chosen,
            " has none, expected it with ", joined(users), " alone");
  };
  const std::string &rule = config.optimizer, &schedule = config.schedule;
  for (const auto& [name, is_set] : {std::pair{"momentum", config.momentum > 0},
                                     {"nesterov", config.nesterov},
                                     {"beta1", config.beta1 != usual.beta1},
                                     {"beta2", config.beta2 != usual.beta2},
                                     {"eps", config.eps > 0}})
    check_use(rule, name, is_set, parallel::rules_with(name));
  check_use(schedule, "decay-every", config.decay_every != usual.decay_every, {"step"});
  check_use(schedule, "gamma", config.gamma != usual.gamma, {"step", "multi-step"});
  check_use(schedule, "milestones", !config.milestones.empty(), {"multi-step"});
  check_use(schedule, "power", config.power != usual.power, {"polynomial"});
  check_use(schedule, "least", config.least != usual.least, {"cosine", "polynomial"});
}

}  // namespace

std::string value_text(const Field& field) {
  return std::visit([](const auto* value) { return toml_of(*value); }, field.value);
}

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string out;
  const char* group = "";
  for (const Field& field : fields_of(copy)) {
    if (std::string_view(field.group) != group) out += text(out.empty() ? "" : "\n", "# ", field.group, "\n");
    group = field.group;
    out += text(field.name, " = ", value_text(field), "\n");
  }
  return out;
}

std::string recipe_toml(const Config& config) {
  Config copy = config;
  std::string out;
  for (const Field& field : fields_of(copy))
    if (field.recipe) out += text(field.name, " = ", value_text(field), "\n");
  return out;
}

std::vector<std::string> read_toml(Config& config, const std::string& content, const std::string& where) {
  const auto fields = fields_of(config);
  std::vector<std::string> names;
  for (const auto& field : fields) names.emplace_back(field.name);
  std::vector<std::string> given;
  for (const TomlItem& item : parse_toml(content, where)) {
    const auto field = std::ranges::find(fields, item.name, [](const Field& f) { return std::string(f.name); });
    require(field != fields.end(), "config", item.where, ": unknown option '", item.name, "'",
            did_you_mean(item.name, names));
    require(std::ranges::count(given, item.name) == 0, "config", item.where, ": '", item.name,
            "' stands there twice, expected once");
    std::visit([&](auto* value) { assign(item, *value); }, field->value);
    given.push_back(item.name);
  }
  return given;
}

std::vector<std::string> read_toml_file(Config& config, const std::string& file) {
  require(!std::filesystem::is_directory(file), "config", "'", file,
          "' is a folder, expected a file of options (NAME = VALUE), such as the config.toml of a run");
  return read_toml(config, read_file(file, "config"), file);
}

void check(const Config& config) {
  Config copy = config;
  for (const Field& field : fields_of(copy)) check_choice(field);
  constexpr double kMost = 1e18, kMostEpochs = 1e9, kMostMetres = 1e9, kMostWorkers = 1024;
  for (const auto& [name, value] :
       {std::pair("accumulate", config.accumulate), {"image-size", config.image_size}, {"slices", config.slices}})
    check_range(name, static_cast<double>(value), 1, kMost);
  for (const auto& [name, value] : {std::pair("batch", config.batch),
                                    {"evaluate-batch", config.evaluate_batch},
                                    {"replicas", config.replicas},
                                    {"steps", config.steps},
                                    {"examples", config.examples},
                                    {"test-examples", config.test_examples},
                                    {"save-every", config.save_every},
                                    {"audit", config.audit},
                                    {"copy-every", config.copy_every},
                                    {"log-every", config.log_every},
                                    {"evaluate-every", config.evaluate_every}})
    check_range(name, static_cast<double>(value), 0, kMost);
  check_range("epochs", static_cast<double>(config.epochs), 0, kMostEpochs);
  check_range("workers", static_cast<double>(config.workers), -1, kMostWorkers);
  for (const auto& [name, value] :
       {std::pair("lr", config.lr), {"clip", config.clip}, {"clip-value", config.clip_value}, {"power", config.power}})
    check_range(name, value, 0, kMost);
  for (const auto& [name, value] :
       {std::pair("weight-decay", config.weight_decay), {"momentum", config.momentum}, {"eps", config.eps}})
    if (value != -1) check_range(name, value, 0, kMost);  // the optimiser's usual one
  check_range("warmup", config.warmup, 0, kMostEpochs);
  for (const auto& [name, value] : {std::pair("label-smoothing", config.label_smoothing),
                                    {"least", config.least},
                                    {"beta1", config.beta1},
                                    {"beta2", config.beta2},
                                    {"gamma", config.gamma}})
    check_range(name, value, 0, 1);
  require(config.voxel > 0 && config.voxel <= kMostMetres, "train", "voxel is ", config.voxel,
          ", expected a length in metres, above 0");
  require(config.decay_every > 0 && config.decay_every <= kMostEpochs, "train", "decay-every is ", config.decay_every,
          ", expected epochs, more than 0");
  for (const double epoch : config.milestones) check_range("one of milestones", epoch, 0, kMostEpochs);
  require(std::ranges::is_sorted(config.milestones), "train", "milestones are not in order, expected ascending epochs");
  require(config.schedule != "multi-step" || !config.milestones.empty(), "train",
          "schedule is multi-step without milestones, expected some, as in --milestones 30,60,90");
  require(config.epochs > 0 || config.steps > 0, "train", "epochs and steps are both 0, expected one of them");
  const bool is_auto = config.split == "auto" || config.split.starts_with("auto:");  // worked out with the data at hand
  if (!is_auto) parallel::parse_split(config.split);
  check_uses(config);
}

bool begins_with_file(const Config& config) {
  return config.init.find('/') != std::string::npos || config.init.ends_with(".pt") || config.init.ends_with(".pth") ||
         archive::is_safetensors(config.init);
}

int64_t usual_batch(bool clouds) {
  return clouds ? 8 : 256;
}

int64_t default_replicas(bool cuda, int64_t devices, int64_t batch) {
  const auto wanted = cuda ? std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, devices))) : uint64_t{8};
  return static_cast<int64_t>(std::min(wanted, std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, batch)))));
}

void apply_preset(Config& config, const std::string& preset, const std::vector<std::string>& given) {
  const std::vector<std::string> known{"best"};
  require(std::ranges::count(known, preset) > 0, "train", "preset is '", preset, "', expected ", joined(known),
          did_you_mean(preset, known));
  Config best = config;
  read_toml(best,
            "init = \"kaiming\"\nbatch = 128\nepochs = 20\noptimizer = \"sgd\"\nlr = 0.05\nmomentum = 0.9\n"
            "nesterov = true\nweight-decay = 5e-4\nschedule = \"cosine\"\nwarmup = 1\n"
            "augment = \"shift:2,flip,normalize\"\n",
            "preset");
  std::vector<std::string> fixed = given;
  if (std::ranges::count(given, "optimizer") > 0 && config.optimizer != best.optimizer)
    for (const char* name : {"lr", "momentum", "nesterov", "weight-decay"})
      fixed.emplace_back(name);  // of the preset's
  const auto from = fields_of(best), to = fields_of(config);
  for (size_t f = 0; f < to.size(); ++f)
    if (std::ranges::count(fixed, to[f].name) == 0)
      std::visit([&](auto* value) { *value = *std::get<std::remove_const_t<decltype(value)>>(from[f].value); },
                 to[f].value);
}

}  // namespace lockstep::run
