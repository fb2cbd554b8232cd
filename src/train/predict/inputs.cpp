// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "lockstep/archive/tensor_file.h"
#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "train/predict/parts.h"

namespace lockstep::train {
namespace {

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
  const auto value = archive::read_tensor_file(file);
  const auto* inputs = value.find("inputs");
  auto all = (inputs == nullptr ? value : *inputs).as<at::Tensor>(inputs == nullptr ? file : "inputs");
  all = all.scalar_type() == at::kByte ? all.to(at::kFloat).div(255) : all.to(at::kFloat);
  if (all.sizes() == shape) all = all.unsqueeze(0);
  require(all.dim() == static_cast<int64_t>(shape.size()) + 1 && all.sizes().slice(1) == shape, "predict", "'", file,
          "' holds ", all.sizes(), ", expected [N, ...] of ", shape);
  require(all.size(0) > 0, "predict", "'", file, "' holds ", all.sizes(), ", expected one example at least");
  require(all.isfinite().all().item<bool>(), "predict", "'", file,
          "' holds numbers that are not finite, expected finite ones");
  std::vector<Example> out;
  for (int64_t n = 0; n < all.size(0); ++n) out.push_back({text(file, "[", n, "]"), all[n]});
  return out;
}

std::vector<Example> read_examples(const std::string& file, at::IntArrayRef shape) {
  if (file.ends_with(".pt")) return read_tensors(file, shape);
  return {read_image(file, shape)};
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

}  // namespace

std::vector<Prediction> predict_inputs(const std::string& file, const Trained& trained, const PredictOptions& options) {
  const data::DatasetInfo& info = trained.data;
  std::vector<Prediction> answers;
  for (const Example& example : read_examples(file, info.input_shape)) {
    const auto input = normalized(example.input.unsqueeze(0), trained.augment).to(trained.device);
    const auto logits = trained.network.forward(input).cpu();
    answers.push_back({.file = example.name, .likeliest = likeliest(logits[0], info, options.top)});
  }
  return answers;
}

}  // namespace lockstep::train
