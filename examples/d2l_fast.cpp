// SPDX-License-Identifier: Apache-2.0
// The same network on the same data with a team: threads of this process, or all processes of `lockstep run -n 2 --`.
//   d2l_fast [DATA] [EPOCHS] [DEVICES]
#include <torch/nn/functional/loss.h>

#include <cstdio>

#include "lockstep/base/allocator.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/loader.h"
#include "lockstep/metrics/accuracy.h"
#include "lockstep/metrics/mean.h"
#include "lockstep/models/images/lenet.h"
#include "lockstep/models/init.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
using namespace lockstep;

int main(int argc, char** argv) {
  pin_numerics();
  tune_allocator();
  const std::string name = argc > 1 ? argv[1] : "fashion-mnist", devices = argc > 3 ? argv[3] : "cpu";
  const auto train = data::open_dataset(name, data::Subset::train), test = data::open_dataset(name, data::Subset::test);
  const auto group = comm::connect();
  const auto team = parallel::Team::create({.replicas = 8, .devices = devices, .group = group});
  const auto mine = team.block();  // the replicas of this process
  data::Loader batches(train, data::Order::shuffled(train->size(), 0), {.batch = 256, .replicas = 8, .block = mine});
  data::Loader tests(test, data::Order::sequential(test->size()), {.batch = 1024, .replicas = 8, .block = mine});
  team.run([&](parallel::Replica& me) {
    models::LeNet made;
    models::initialise(*made, "d2l");
    auto net = me.share(made);
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.2});
    for (int epoch = 0; epoch < (argc > 2 ? std::stoi(argv[2]) : 10); ++epoch) {
      metrics::Mean loss;
      for (const auto& batch : batches.share(me.number())) {
        const auto mean = torch::nn::functional::cross_entropy(net->forward(batch.inputs), batch.targets);
        const auto step = me.step(mean, optimizer, static_cast<double>(batch.count));
        loss.add(step.loss, step.weight);
      }
      const at::NoGradGuard no_grad;
      metrics::Accuracy accuracy;
      for (const auto& batch : tests.share(me.number())) accuracy.add(net->forward(batch.inputs), batch.targets);
      accuracy.merge(me.all_gather(accuracy.state()));
      if (me.number() == 0) std::printf("epoch %d: loss %.6f, test acc %.4f\n", epoch, loss.value(), accuracy.value());
    }
  });
  group.finish();
}
