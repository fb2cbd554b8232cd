// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>

#include "lockstep/models/clouds/mink_fcnn.h"
#include "lockstep/models/clouds/mink_resnet.h"
#include "lockstep/models/clouds/minkunet.h"
#include "lockstep/models/clouds/stack_unet.h"
#include "lockstep/sparse/nn/convolution.h"
#include "models/clouds/clouds.h"

namespace lockstep::models {
namespace {

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

}  // namespace

std::vector<Entry> cloud_networks() {
  std::vector<Entry> networks;
  for (const std::string& variant : minkunet_variants()) networks.push_back(minkunet(variant));
  networks.push_back({"voxel_linear",
                      "a linear layer on the features of each voxel: what clouds give away without their shape",
                      {},
                      make_voxel_linear,
                      Labels::points});
  networks.push_back({"stackunet", "a small U-net of sums for points of clouds", {}, make_stack_unet, Labels::points});
  for (const int64_t depth : {14, 18, 34, 50, 101}) networks.push_back(mink_resnet(depth));
  networks.push_back(
      {"minkfcnn", "MinkowskiEngine's fully convolutional network for clouds", {}, make_mink_fcnn, Labels::clouds});
  return networks;
}

const char* note_on_networks() {
  return "";
}

}  // namespace lockstep::models
