// SPDX-License-Identifier: Apache-2.0
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <numeric>

#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "lockstep/models/clouds/mink_fcnn.h"
#include "lockstep/models/clouds/mink_resnet.h"
#include "lockstep/models/clouds/minkunet.h"
#include "lockstep/models/clouds/stack_unet.h"
#include "lockstep/models/images/equivariant.h"
#include "lockstep/models/images/lenet.h"
#include "lockstep/models/images/mlp.h"
#include "lockstep/models/images/resnet.h"
#include "lockstep/models/images/small_images.h"
#include "lockstep/models/registry.h"
#include "lockstep/sparse/nn/convolution.h"

namespace lockstep::models {
namespace {

struct Image {
  int64_t channels, height, width;
};

Image image_of(const char* model, const Options& options) {
  require(options.input.size() == 3, model, "an example has the sizes ", c10::IntArrayRef(options.input),
          ", expected an image [channels, height, width]");
  return {options.input[0], options.input[1], options.input[2]};
}

std::shared_ptr<Classifier> make_lenet(const Options& options) {
  const Image image = image_of("lenet", options);
  return Classifier::of(LeNet(LeNetOptions{image.channels, image.height, image.width, options.classes}));
}

std::shared_ptr<Classifier> make_mlp(const Options& options) {
  require(options.dimension == 0, "mlp", "an example is a cloud of points, expected numbers without coordinates");
  MlpOptions mlp{.classes = options.classes};
  mlp.inputs = std::accumulate(options.input.begin(), options.input.end(), int64_t{1}, std::multiplies<>());
  mlp.hidden = options.integers("hidden");
  mlp.dropout = options.real("dropout");
  return Classifier::of(Mlp(mlp));
}

template <class Network>
std::shared_ptr<Classifier> make_small(const char* model, const Options& options) {
  const Image image = image_of(model, options);
  return Classifier::of(Network(SmallImageOptions{image.channels, image.height, image.width, options.classes,
                                                  options.real("width"), options.real("dropout")}));
}

bool has_small_stem(const char* model, const Options& options, const Image& image) {
  const std::vector<std::string> stems{"auto", "small", "imagenet"};
  const std::string& stem = options.word("stem");
  require(std::ranges::find(stems, stem) != stems.end(), model, "the setting stem is '", stem, "', expected ",
          one_of(stems), did_you_mean(stem, stems));
  return stem == "small" || (stem == "auto" && std::min(image.height, image.width) <= 64);
}

std::shared_ptr<Classifier> make_resnet(const char* model, ResNetOptions resnet, const Options& options) {
  const Image image = image_of(model, options);
  const double width = options.real("width");
  require(width > 0, model, "the setting width is ", width, ", expected it above 0");
  resnet.channels = image.channels;
  resnet.classes = options.classes;
  resnet.width = std::max<int64_t>(1, std::llround(width * static_cast<double>(resnet.width)));
  resnet.small_images = has_small_stem(model, options, image);
  return Classifier::of(ResNet(resnet));
}

std::shared_ptr<Classifier> make_equivariant(const char* model, Symmetry symmetry, const Options& options) {
  const Image image = image_of(model, options);
  require(image.height == image.width, model, "images are ", image.height, "x", image.width,
          ", expected square ones, that can be turned");
  return Classifier::of(Equivariant(
      EquivariantOptions{symmetry, image.channels, image.height, options.classes, options.integer("features")}));
}

/// "minkunet34c"
Entry minkunet(const std::string& variant) {
  std::string name = "minkunet" + variant;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto make = [variant](const Options& options) {
    return Classifier::of(
        MinkUNet(MinkUNetOptions::variant(variant, options.input[0], options.classes, options.dimension)));
  };
  return {name,
          "MinkUNet" + variant + " for points of clouds, weights named as MinkowskiEngine's",
          {},
          make,
          Labels::points};
}

Entry mink_resnet(int64_t depth) {
  const auto make = [depth](const Options& options) {
    auto resnet = MinkResNetOptions::of_depth(depth, options.input[0], options.classes, options.dimension);
    resnet.field = options.integer("field") != 0;
    return Classifier::of(MinkResNet(resnet));
  };
  return {"minkresnet" + std::to_string(depth),
          "MinkResNet" + std::to_string(depth) + " for clouds, weights named as MinkowskiEngine's",
          {{"field", "0", "1: begin with a perceptron of each point"}},
          make,
          Labels::clouds};
}

std::shared_ptr<Classifier> make_mink_fcnn(const Options& options) {
  return Classifier::of(MinkFcnn(MinkFcnnOptions{
      .in_channels = options.input[0], .out_channels = options.classes, .dimension = options.dimension}));
}

std::shared_ptr<Classifier> make_voxel_linear(const Options& options) {
  return Classifier::of(sparse::nn::Linear(options.input[0], options.classes));
}

std::shared_ptr<Classifier> make_stack_unet(const Options& options) {
  return Classifier::of(StackUNet(StackUNetOptions{options.input[0], options.classes, options.dimension}));
}

Entry resnet(const char* name, const char* description, const ResNetOptions& plan) {
  return {name,
          description,
          {{"width", "1", "multiplies the channels of every layer"},
           {"stem", "auto", "small (3x3, no pooling), imagenet (7x7 and pooling), or auto: small up to 64x64"}},
          [=](const Options& options) { return make_resnet(name, plan, options); }};
}

Entry equivariant(const char* name, const char* description, Symmetry symmetry) {
  return {name,
          description,
          {{"features", "8", "of the first stage, each at every element of the group"}},
          [=](const Options& options) { return make_equivariant(name, symmetry, options); }};
}

}  // namespace

Registry builtin() {
  const std::vector<Setting> small{{"width", "1", "multiplies the channels and units of every layer"},
                                   {"dropout", "0.5", "in the dense part"}};
  Registry registry;
  registry.add({"lenet", "LeNet as Dive into Deep Learning 12.5 has it", {}, make_lenet});
  registry.add({"mlp",
                "dense layers with ReLU",
                {{"hidden", "256", "sizes of the hidden layers: 256,128"}, {"dropout", "0", "after each of them"}},
                make_mlp});
  registry.add({"alexnet", "AlexNet for small images", small,
                [](const Options& options) { return make_small<AlexNet>("alexnet", options); }});
  registry.add({"vgg", "VGG with batch norm for small images", small,
                [](const Options& options) { return make_small<Vgg>("vgg", options); }});
  registry.add(resnet("resnet18", "ResNet-18, weights named as torchvision's", ResNetOptions::resnet18()));
  registry.add(resnet("resnet34", "ResNet-34, weights named as torchvision's", ResNetOptions::resnet34()));
  registry.add(resnet("resnet50", "ResNet-50, weights named as torchvision's", ResNetOptions::resnet50()));
  registry.add(equivariant("c4", "a CNN that sees turned images alike", Symmetry::c4));
  registry.add(equivariant("d4", "a CNN that sees turned and mirrored images alike", Symmetry::d4));
  for (const std::string& variant : minkunet_variants()) registry.add(minkunet(variant));
  registry.add({"voxel_linear",
                "a linear layer on the features of each voxel: what clouds give away without their shape",
                {},
                make_voxel_linear,
                Labels::points});
  registry.add({"stackunet", "a small U-net of sums for points of clouds", {}, make_stack_unet, Labels::points});
  for (const int64_t depth : {14, 18, 34, 50, 101}) registry.add(mink_resnet(depth));
  registry.add(
      {"minkfcnn", "MinkowskiEngine's fully convolutional network for clouds", {}, make_mink_fcnn, Labels::clouds});
  return registry;
}

}  // namespace lockstep::models
