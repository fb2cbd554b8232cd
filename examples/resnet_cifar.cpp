// SPDX-License-Identifier: Apache-2.0
// ResNet-18 for 32x32 images, as one trains it on CIFAR-10: random crops and flips, momentum, a cosine schedule,
// synchronised batch norms, all replicas evaluating.
//   resnet_cifar [--data cifar10:FOLDER] [--epochs 30] [--batch 128] [--width 1] [--devices cpu] [--replicas 8]
// Without --data it trains on made-up images, to show that it runs.
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/loader.h"
#include "lockstep/metrics/accuracy.h"
#include "lockstep/metrics/mean.h"
#include "lockstep/models/registry.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/schedule.h"

using namespace lockstep;

using Options = std::map<std::string, std::string>;

Options parse(int argc, char** argv) {
  Options options{{"--data", "synthetic:3x32x32:10:512"},
                  {"--epochs", "30"},
                  {"--batch", "128"},
                  {"--width", "1"},
                  {"--devices", "cpu"},
                  {"--replicas", "8"}};
  for (int i = 1; i < argc; i += 2) {
    require(options.contains(argv[i]) && i + 1 < argc, "resnet_cifar", "got '", argv[i],
            "', expected --data, --epochs, --batch, --width, --devices or --replicas and a value");
    options[argv[i]] = argv[i + 1];
  }
  return options;
}

double evaluate(parallel::Replica& me, models::Classifier& net, data::Loader& tests) {
  const at::NoGradGuard no_grad;
  net.eval();
  metrics::Accuracy accuracy;
  for (const auto& batch : tests.share(me.number())) accuracy.add(net.forward(batch.inputs), batch.targets);
  net.train();
  accuracy.merge(me.all_gather(accuracy.state()));
  return accuracy.value();
}

void train(const Options& options, const comm::Group& group) {
  const auto train_set = data::open_dataset(options.at("--data"), data::Subset::train);
  const auto test_set = data::open_dataset(options.at("--data"), data::Subset::test);
  const int64_t epochs = std::stoll(options.at("--epochs")), replicas = std::stoll(options.at("--replicas"));
  const auto team =
      parallel::Team::create({.replicas = replicas, .devices = options.at("--devices"), .group = group, .seed = 1});
  data::LoaderOptions loading{.batch = std::stoll(options.at("--batch")), .replicas = replicas, .block = team.block()};
  loading.layout = data::Layout::channels_last;
  const auto augment = data::Transforms::parse("crop:4,flip,normalize").with(train_set->normalization());
  loading.transforms = augment.deterministic();
  data::Loader tests(test_set, data::Order::sequential(test_set->size()), loading);
  loading.transforms = augment;
  data::Loader batches(train_set, data::Order::shuffled(train_set->size(), 1), loading);

  team.run([&](parallel::Replica& me) {
    auto made = models::make("resnet18", {.input = train_set->info().input_shape,
                                          .classes = train_set->info().classes,
                                          .settings = {{"width", options.at("--width")}, {"stem", "small"}}});
    norm::convert_sync_batchnorm(*made);
    const auto net = me.share(made);
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
    const int64_t steps = epochs * batches.batches_per_epoch(), warming = std::max<int64_t>(1, steps / 20);
    optimizer.schedule(parallel::warm_up(warming, parallel::cosine(std::max<int64_t>(1, steps - warming))));
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      metrics::Mean loss;
      for (const auto& batch : batches.share(me.number())) {
        // A share without examples takes part in the batch norms too; its loss is a sum over nothing.
        const auto logits = net->forward(batch.inputs);
        const auto mean = batch.count > 0 ? torch::nn::functional::cross_entropy(logits, batch.targets) : logits.sum();
        const auto step = me.step(mean, optimizer, static_cast<double>(batch.count));
        loss.add(step.loss, step.weight);
      }
      const double accuracy = evaluate(me, *net, tests);
      if (me.number() == 0)
        std::printf("epoch %ld: loss %.6f, test acc %.4f\n", static_cast<long>(epoch), loss.value(), accuracy);
    }
  });
}

int main(int argc, char** argv) try {
  pin_numerics();
  tune_allocator();
  const auto group = comm::connect();
  train(parse(argc, argv), group);
  group.finish();
} catch (const std::exception& error) {
  std::fprintf(stderr, "resnet_cifar: %s\n", error.what());
  return 1;
}
