// SPDX-License-Identifier: Apache-2.0
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "lockstep/models/images/equivariant.h"
#include "lockstep/models/images/lenet.h"
#include "lockstep/models/images/mlp.h"
#include "lockstep/models/images/resnet.h"
#include "lockstep/models/images/small_images.h"
#include "lockstep/models/registry.h"
#include "models/clouds/clouds.h"

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
  for (Entry& network : cloud_networks()) registry.add(std::move(network));
  return registry;
}

}  // namespace lockstep::models
