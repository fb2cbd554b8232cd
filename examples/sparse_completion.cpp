// SPDX-License-Identifier: Apache-2.0
// A network that completes clouds: it sees half of a shape's voxels and makes the whole. Generative transposed
// convolutions grow all voxels of the next resolution, a layer tells which of them are occupied, and the others are
// pruned; each resolution has its loss. Every replica has clouds of its own; batch norms are synchronised.
//   sparse_completion [--steps 120] [--batch 16] [--replicas 4] [--devices cpu]
#include <ATen/ops/cat.h>
#include <cstdio>
#include <exception>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/comm/connect.h"
#include "lockstep/models/clouds/completion.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/schedule.h"
#include "shapes.h"

using namespace lockstep;

constexpr uint64_t kTraining = 1, kHeldOut = 2;

struct Batch {
  sparse::SparseTensor halves;
  sparse::CoordinateMapKey wholes;  // in the same manager
};

Batch make_batch(int64_t clouds, RandomKey key) {
  std::vector<at::Tensor> halves, wholes;
  for (int64_t cloud = 0; cloud < clouds; ++cloud) {
    wholes.push_back(shapes::draw(key.fold(cloud)));
    halves.push_back(shapes::half_of(wholes.back(), key.fold(cloud)));
  }
  const sparse::SparseTensor seen = shapes::collate(halves);
  const auto target = seen.manager()->insert(shapes::collate(wholes).coordinates(), {1, 1, 1}, "whole").key;
  return {seen, target};
}

/// Intersection over union with held-out shapes of what the network makes, and of the halves that it sees.
std::pair<double, double> evaluate(parallel::Replica& me, models::CompletionNet& net, int64_t clouds) {
  const at::NoGradGuard no_grad;
  net->eval();
  const Batch batch = make_batch(clouds, RandomKey{kHeldOut}.fold(me.number()));
  const auto wanted = batch.halves.manager()->map(batch.wholes);
  const auto made = net->forward(batch.halves).cloud;
  const auto sums = me.sum(at::cat({shapes::overlap(made, *wanted), shapes::overlap(batch.halves, *wanted)}));
  net->train();
  const auto ratio = [&](int64_t first) { return (sums[first] / sums[first + 1]).item<double>(); };
  return {ratio(0), ratio(2)};
}

void train(const shapes::Options& options, const comm::Group& group) {
  const int64_t steps = std::stoll(options.at("--steps")), replicas = std::stoll(options.at("--replicas"));
  const int64_t clouds = std::stoll(options.at("--batch")) / replicas;  // of each replica
  require(clouds > 0, "options", "a batch of ", options.at("--batch"), " has none for some of ", replicas,
          " replicas, expected one each at least");
  const auto team =
      parallel::Team::create({.replicas = replicas, .devices = options.at("--devices"), .group = group, .seed = 1});
  team.run([&](parallel::Replica& me) {
    models::CompletionNet made(models::CompletionOptions{.channels = {8, 16, 32, 48, 64}});
    norm::convert_sync_batchnorm(made);
    auto net = me.share(made);
    auto optimizer = me.optimizer(parallel::Adam{.lr = 0.01});
    optimizer.schedule(parallel::cosine(steps, /*least=*/0.01));
    double sum = 0;
    for (int64_t step = 1; step <= steps; ++step) {
      const Batch batch = make_batch(clouds, RandomKey{kTraining}.fold(step).fold(me.number()));
      sum += me.step(models::occupancy_loss(net->forward(batch.halves, batch.wholes)), optimizer).loss;
      if (step % 20 != 0) continue;
      if (me.number() == 0) std::printf("step %3ld: loss %.4f\n", static_cast<long>(step), sum / 20);
      sum = 0;
    }
    const auto [found, seen] = evaluate(me, net, /*clouds=*/8);
    if (me.number() == 0)
      std::printf("of %ld held-out shapes: IoU %.3f, of the halves that it saw %.3f\n", static_cast<long>(8 * replicas),
                  found, seen);
  });
}

int main(int argc, char** argv) try {
  pin_numerics();
  tune_allocator();
  const auto options =
      shapes::parse(argc, argv, "Learns to complete hollow balls, boxes and cylinders of which it sees a half.",
                    {{"--steps", "120"}, {"--batch", "16"}, {"--replicas", "4"}, {"--devices", "cpu"}});
  const auto group = comm::connect();
  train(options, group);
  group.finish();
} catch (const std::exception& error) {
  std::fprintf(stderr, "sparse_completion: %s\n", error.what());
  return 1;
}
