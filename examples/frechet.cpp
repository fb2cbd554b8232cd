// SPDX-License-Identifier: Apache-2.0
// How far apart two sets of images are, as a network sees them: the Frechet distance of the features of one of its
// layers (of Inception's last pooling it is the FID). Every replica sees its share of the images; their moments merge
// in the order of the tree over replicas, so the figure has the same digits on any number of devices.
//
//     frechet fashion-mnist cpu:2              data, devices
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <cstdio>

#include "lockstep/data/loader.h"
#include "lockstep/metrics/frechet.h"
#include "lockstep/parallel/replica.h"

using namespace lockstep;

// The layer that is looked at: any network's will do, and untrained ones tell sets apart too.
torch::nn::Sequential make_features(const data::DatasetInfo& info) {
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(info.input_shape[0], 8, 3).stride(2)),
                               torch::nn::ReLU(), torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).stride(2)),
                               torch::nn::ReLU(), torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten());
}

// The moments of all images of a set, the same on every replica.
metrics::FeatureMoments moments_of(data::Loader& images, torch::nn::Sequential& features, parallel::Replica& me) {
  const torch::NoGradGuard no_graph;
  metrics::FeatureMoments moments(16);
  for (const data::Batch& batch : images.share(me.number()))
    if (batch.count > 0) moments.add(features->forward(batch.inputs));
  moments.merge(me.all_gather(moments.state()));
  return moments;
}

int main(int argc, char** argv) {
  const std::string spec = argc > 1 ? argv[1] : "fashion-mnist", devices = argc > 2 ? argv[2] : "cpu";
  const auto train = data::open_dataset(spec, data::Subset::train), test = data::open_dataset(spec, data::Subset::test);
  const auto team = parallel::Team::create({.replicas = 8, .devices = devices});
  const auto images = [&](const auto& dataset, const char* transforms) {
    return data::Loader(dataset, data::Order::sequential(dataset->size()),
                        {.batch = 512,
                         .replicas = 8,
                         .block = team.block(),
                         .transforms = data::Transforms::parse(transforms).with(train->normalization())});
  };
  data::Loader real = images(train, "normalize"), other = images(test, "normalize");
  data::Loader erased = images(test, "erase:1,normalize");
  team.run([&](parallel::Replica& me) {
    auto features = me.share(make_features(train->info()));
    features->eval();
    const auto of_real = moments_of(real, features, me), of_other = moments_of(other, features, me);
    const auto of_erased = moments_of(erased, features, me);
    if (me.number() != 0) return;
    std::printf("training and test images: %.9f\n", metrics::frechet_distance(of_real, of_other));
    std::printf("training and test images with a part erased: %.9f\n", metrics::frechet_distance(of_real, of_erased));
  });
}
