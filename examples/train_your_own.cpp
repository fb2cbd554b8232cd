// SPDX-License-Identifier: Apache-2.0
// A network of one's own, trained by the library's trainer: checkpoints, curves, progress, resumed runs, any placement.
//   train_your_own [DATA] [EPOCHS] [DEVICES] [FOLDER]
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

#include "lockstep/base/allocator.h"
#include "lockstep/comm/connect.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/train/trainer.h"
using namespace lockstep;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 5).stride(2)));
    out = register_module("out", torch::nn::Linear(16 * 12 * 12, 10));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(conv(x)).flatten(1)); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear out{nullptr};
};

int main(int argc, char** argv) {
  pin_numerics();
  tune_allocator();
  const std::string name = argc > 1 ? argv[1] : "fashion-mnist";
  run::Config config;
  config.epochs = argc > 2 ? std::stoi(argv[2]) : 10;
  config.devices = argc > 3 ? argv[3] : "";
  config.out = argc > 4 ? argv[4] : "";
  config.momentum = 0.9;
  config.schedule = "cosine";
  config.augment = "flip,normalize";
  const auto group = comm::connect();
  train::Trainer trainer(config,
                         {.model = "mine",
                          .network = [] { return models::Classifier::of(std::make_shared<NetImpl>()); },
                          .train = data::open_dataset(name, data::Subset::train),
                          .test = data::open_dataset(name, data::Subset::test)},
                         group);
  trainer.on_epoch([](const train::EpochReport& epoch) {
    std::printf("epoch %ld: loss %.6f, test acc %.4f\n", static_cast<long>(epoch.epoch), epoch.train_loss,
                epoch.test->accuracy);
  });
  const auto outcome = trainer.run();
  if (group.rank() == 0) std::printf("weights %s\n", outcome.hash.c_str());
  group.finish();
}
