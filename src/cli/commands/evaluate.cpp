// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <memory>
#include <sstream>
#include <utility>

#include "cli/commands/commands.h"
#include "cli/config_options.h"
#include "cli/relaunch.h"
#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/report/format.h"
#include "lockstep/run/detail/json.h"
#include "lockstep/train/model_file.h"

namespace lockstep::cli {
namespace {

using run::Json;

struct EvaluateCommand {
  train::EvaluateOptions options;
  std::string subset = "test";
  std::vector<std::string> metrics;
  bool json = false;
};

constexpr int64_t kTopK = 5;

bool wants(const EvaluateCommand& command, const std::string& metric) {
  return std::ranges::count(command.metrics, metric) > 0;
}

Json json_of(const train::Evaluation& evaluation, const data::DatasetInfo& info, const EvaluateCommand& command) {
  Json out{{"data", info.name},
           {"examples", evaluation.examples},
           {"loss", evaluation.loss},
           {"accuracy", evaluation.accuracy}};
  if (info.segments()) out["counted"] = command.options.figures.points ? "points" : "voxels";
  if (evaluation.mean_iou) {
    out["mean_iou"] = *evaluation.mean_iou;
    for (size_t c = 0; c < evaluation.class_iou.size(); ++c)  // null of a class that does not occur
      out["iou"][info.class_names[c]] = run::finite(evaluation.class_iou[c]);
  }
  if (wants(command, "topk")) out["top5"] = evaluation.top_k;
  if (!evaluation.confusion.defined() || !wants(command, "confusion")) return out;
  out["classes"] = info.class_names;
  Json rows = Json::array();
  for (int64_t row = 0; row < evaluation.confusion.size(0); ++row) {
    const auto* counts = evaluation.confusion[row].const_data_ptr<int64_t>();
    rows.push_back(std::vector<int64_t>(counts, counts + evaluation.confusion.size(1)));
  }
  out["confusion"] = std::move(rows);
  return out;
}

std::string confusion_table(const Json& facts) {
  std::ostringstream out;
  size_t name_width = 5;
  for (const auto& name : facts["classes"]) name_width = std::max(name_width, name.get<std::string>().size());
  int width = 4;
  for (const auto& row : facts["confusion"])
    for (const auto& count : row) width = std::max(width, static_cast<int>(count.dump().size()));
  out << "\ntruth (rows), prediction (columns, in the same order)\n";
  for (size_t row = 0; row < facts["confusion"].size(); ++row) {
    out << std::left << std::setw(static_cast<int>(name_width)) << facts["classes"][row].get<std::string>()
        << std::right;
    for (const auto& count : facts["confusion"][row]) out << " " << std::setw(width) << count.get<int64_t>();
    out << "\n";
  }
  return out.str();
}

std::string as_text(const Json& facts) {
  std::string out = text(facts["examples"], " examples of ", facts["data"].get<std::string>(),
                         facts.contains("counted") ? ", by " + facts["counted"].get<std::string>() : "", ": loss ",
                         report::fixed(facts["loss"], 4), ", accuracy ", report::fixed(facts["accuracy"], 4));
  if (facts.contains("top5")) out += text(", top-5 accuracy ", report::fixed(facts["top5"], 4));
  if (facts.contains("mean_iou")) {
    out += text(", mIoU ", report::fixed(facts["mean_iou"], 4));
    for (const auto& [name, iou] : facts["iou"].items())
      out += text("\n  ", name, " ", iou.is_null() ? "-" : report::fixed(iou, 4));
  }
  if (facts.contains("confusion")) out += confusion_table(facts);
  return out;
}

void check(const EvaluateCommand& command) {
  const std::vector<std::string> known{"topk", "confusion"}, subsets{"test", "train"};
  for (const auto& metric : command.metrics)
    require(std::ranges::count(known, metric) > 0, "evaluate", "--metrics has '", metric,
            "', expected topk or confusion", did_you_mean(metric, known));
  require(std::ranges::count(subsets, command.subset) > 0, "evaluate", "--subset is '", command.subset,
          "', expected test or train", did_you_mean(command.subset, subsets));
}

int evaluate(const EvaluateCommand& command) {
  check(command);
  if (const int gpus = gpus_of_one_process(command.options.devices); gpus > 1) return relaunch(gpus);
  train::EvaluateOptions options = command.options;
  const bool is_subset = options.split == "test" || options.split == "train";  // what --subset was called once
  const std::string subset = is_subset ? std::exchange(options.split, "data") : command.subset;
  options.subset = subset == "train" ? data::Subset::train : data::Subset::test;
  options.figures.top_k = wants(command, "topk") ? kTopK : 0;
  options.figures.confusion = wants(command, "confusion");
  const comm::Group group = comm::connect();
  const auto [evaluation, info] = train::evaluate_model(options, group);
  if (group.rank() == 0) {
    const Json facts = json_of(evaluation, info, command);
    std::printf("%s\n", command.json ? run::dump_json(facts).c_str() : as_text(facts).c_str());
  }
  group.finish();
  return 0;
}

}  // namespace

void setup_evaluate(CLI::App& app, Command& chosen) {
  const auto all = std::make_shared<EvaluateCommand>();
  train::EvaluateOptions* options = &all->options;
  CLI::App* command = app.add_subcommand("evaluate", "Loss and accuracy of a trained network, on all devices");
  command->add_option("checkpoint", options->path, "A run's folder, a checkpoint or a file of weights")->required();
  command->add_option("--data", options->data, "The data; default: what it was trained on");
  command->add_option("--subset", all->subset, "Of the data: test (the default) or train");
  command
      ->add_option("--metrics", all->metrics,
                   "More figures: topk (whether the truth is among the 5 likeliest), confusion")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--devices", options->devices, "Of each process: 2, cpu:4, cuda:0; default: all there are");
  command->add_option("--split", options->split,
                      "What devices divide, as in training: data (the default), p2, t2, p2t2; auto is data");
  command->add_option("--batch", options->batch, "Examples evaluated at once, of all replicas")
      ->check(CLI::PositiveNumber);
  command->add_option("--replicas", options->replicas, "R, over which they are divided; default: as in training")
      ->check(CLI::PositiveNumber);
  command->add_option("--examples", options->examples, "Only the first so many")->check(CLI::PositiveNumber);
  add_network_options(*command, options->model, options->set);
  command->add_flag("--points", options->figures.points,
                    "Of clouds: count every point, as benchmarks do, instead of every voxel");
  command->add_flag("--json", all->json, "The same as JSON");
  command->callback([all, &chosen] { chosen = [all] { return evaluate(*all); }; });
}

}  // namespace lockstep::cli
