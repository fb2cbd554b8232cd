// SPDX-License-Identifier: Apache-2.0
#include "cli/predict.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/model_file.h"
#include "cli/predict_cloud.h"
#include "lockstep/core/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/report/format.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Example {
  std::string name;
  at::Tensor input;  // [C, H, W], before normalisation
};

// As many channels as the network takes: three become one by their luminance.
at::Tensor with_channels(const at::Tensor& image, int64_t channels) {
  if (channels == 3) return image;
  const auto weights = at::tensor(std::vector<float>{0.299F, 0.587F, 0.114F}).view({3, 1, 1});
  return (image * weights).sum(0, true).expand({channels, -1, -1});
}

Example read_image(const std::string& file, at::IntArrayRef shape) {
  require(shape.size() == 3 && shape[1] == shape[2], "predict", "the network takes inputs ", shape,
          ", expected square images: give tensors in a .pt file");
  const auto images = data::open_image_files({file}, {.image_size = shape[1]});
  const auto image = at::empty({3, shape[1], shape[1]}, at::kFloat);
  int64_t target = 0;
  const int64_t id = 0;
  images->read({&id, 1}, image.mutable_data_ptr<float>(), &target);
  return {file, with_channels(image, shape[0])};
}

std::vector<Example> read_tensors(const std::string& file, at::IntArrayRef shape) {
  const auto value = train::read_tensor_file(file);
  const auto* inputs = value.find("inputs");
  auto all = (inputs == nullptr ? value : *inputs).as<at::Tensor>(inputs == nullptr ? file : "inputs");
  all = all.scalar_type() == at::kByte ? all.to(at::kFloat).div(255) : all.to(at::kFloat);
  if (all.sizes() == shape) all = all.unsqueeze(0);
  require(all.dim() == static_cast<int64_t>(shape.size()) + 1 && all.sizes().slice(1) == shape, "predict", "'", file,
          "' holds ", all.sizes(), ", expected [N, ...] of ", shape);
  std::vector<Example> out;
  for (int64_t n = 0; n < all.size(0); ++n) out.push_back({text(file, "[", n, "]"), all[n]});
  return out;
}

std::vector<Example> read_examples(const std::vector<std::string>& files, at::IntArrayRef shape) {
  std::vector<Example> out;
  for (const auto& file : files) {
    require(std::filesystem::is_regular_file(file), "predict", "'", file, "' is no file, expected an image or a .pt");
    if (!file.ends_with(".pt")) {
      out.push_back(read_image(file, shape));
      continue;
    }
    for (auto& example : read_tensors(file, shape)) out.push_back(std::move(example));
  }
  return out;
}

// What the transforms of training do to every example.
at::Tensor normalized(const at::Tensor& inputs, const std::string& augment) {
  const auto transforms = data::Transforms::parse(augment);
  for (const auto& transform : transforms.list())
    if (const auto* normalize = std::get_if<data::Normalize>(&transform)) {
      const auto channels = static_cast<int64_t>(normalize->figures.mean.size());
      const auto view = [&](const std::vector<float>& values) { return at::tensor(values).view({1, channels, 1, 1}); };
      return (inputs - view(normalize->figures.mean)) / view(normalize->figures.deviation);
    }
  return inputs;
}

Json answer(const Example& example, const at::Tensor& probabilities, const data::DatasetInfo& info, int64_t top) {
  const auto [values, classes] = probabilities.topk(std::min(top, probabilities.size(0)));
  Json best = Json::array();
  for (int64_t k = 0; k < values.size(0); ++k)
    best.push_back(
        {{"class", info.class_names[classes[k].item<int64_t>()]}, {"probability", values[k].item<double>()}});
  return {{"file", example.name}, {"predictions", std::move(best)}};
}

Json predict_clouds(const PredictOptions& options, models::Classifier& network, const data::DatasetInfo& info) {
  require(info.segments(), "predict", "the network gives whole clouds of ", info.name,
          " a class, expected one that labels points; 'lockstep evaluate' tells how good it is");
  require(options.files.size() == 1 || (options.out.empty() && options.png.empty()), "predict",
          "--out and --png are for ", "one file, got ", options.files.size());
  Json answers = Json::array();
  for (const auto& file : options.files)
    answers.push_back(predict_cloud(file, network, info, options.out, options.png));
  return answers;
}

void print_clouds(const Json& answers) {
  for (const auto& one : answers) {
    std::string line = text(one["file"].get<std::string>(), ": ", one["points"].get<int64_t>(), " points");
    for (const auto& [name, count] : one["classes"].items())
      if (count.get<int64_t>() > 0) line += text(", ", name, " ", count.get<int64_t>());
    if (one.contains("accuracy")) line += "; accuracy " + report::fixed(one["accuracy"], 4);
    std::printf("%s\n", line.c_str());
  }
}

}  // namespace

int predict(const PredictOptions& options) {
  ModelFile model = open_model(options.path, options.model, {});
  if (!options.data.empty()) model.config.data = options.data;
  const auto task = train::make_task(model.config);
  const auto& info = task.train->info();
  const auto network = task.network();
  models::load_state_dict(*network, model.weights);
  network->eval();
  const at::NoGradGuard no_grad;
  const bool clouds = info.voxel > 0;
  require(clouds || (options.out.empty() && options.png.empty()), "predict",
          "--out and --png are for clouds, and the network takes other data");
  Json answers = clouds ? predict_clouds(options, *network, info) : Json::array();
  if (!clouds)
    for (const Example& example : read_examples(options.files, info.input_shape)) {
      const auto logits = network->forward(normalized(example.input.unsqueeze(0), model.config.augment));
      answers.push_back(answer(example, logits[0].softmax(0), info, options.top));
    }
  if (options.json) {
    std::printf("%s\n", answers.dump(2).c_str());
    return 0;
  }
  if (clouds) {
    print_clouds(answers);
    return 0;
  }
  for (const auto& one : answers) {
    std::string line = one["file"].get<std::string>() + ":";
    for (const auto& best : one["predictions"])
      line += text(best == one["predictions"][0] ? " " : ", ", best["class"].get<std::string>(), " ",
                   report::fixed(best["probability"], 3));
    std::printf("%s\n", line.c_str());
  }
  return 0;
}

void setup_predict(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* command = app.add_subcommand("predict", "What a trained network makes of images, tensors or clouds");
  command->add_option("checkpoint", options->path, "A run's folder, a checkpoint or a file of weights")->required();
  command->add_option("file", options->files, "PNG or JPEG images, .pt files of tensors, or PLY files of points")
      ->required();
  command->add_option("--out", options->out,
                      "Of a cloud: a PLY file of its points with the labels found, and coloured by them");
  command->add_option("--png", options->png, "Of a cloud: a picture of that, from above and in perspective");
  command->add_option("--top", options->top, "How many answers to each; default 3")->check(CLI::Range(1, 1000));
  command->add_option("--model", options->model, "The network, where the file holds weights alone");
  command->add_option("--data", options->data, "The data set that names the classes; default: the training's");
  command->add_flag("--json", options->json, "The same as JSON");
  command->callback([options, &chosen] { chosen = [options] { return predict(*options); }; });
}

}  // namespace lockstep::cli
