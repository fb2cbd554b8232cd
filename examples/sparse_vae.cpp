// SPDX-License-Identifier: Apache-2.0
// A variational autoencoder of clouds: a shape becomes a code, drawn from the distribution that the encoder gives, and
// the decoder grows a shape from that one voxel. The loss is that of occupied voxels at each resolution and the
// divergence of the codes' distribution. Every replica has clouds of its own; batch norms are synchronised.
//   sparse_vae [--steps 160] [--batch 16] [--divergence 0.01] [--replicas 4] [--devices cpu]
#include <ATen/ops/cat.h>
#include <cstdio>
#include <exception>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/comm/connect.h"
#include "lockstep/models/clouds/vae.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/schedule.h"
#include "shapes.h"

using namespace lockstep;

constexpr uint64_t kTraining = 1, kHeldOut = 2;

sparse::SparseTensor make_batch(int64_t clouds, RandomKey key) {
  std::vector<at::Tensor> whole;
  for (int64_t cloud = 0; cloud < clouds; ++cloud) whole.push_back(shapes::draw(key.fold(cloud)));
  return shapes::collate(whole);
}

/// Intersection over union of held-out shapes with what comes out of their codes, and, for comparison, with another
/// held-out shape.
std::pair<double, double> evaluate(parallel::Replica& me, models::Vae& net, int64_t clouds) {
  const at::NoGradGuard no_grad;
  net->eval();
  const RandomKey key = RandomKey{kHeldOut}.fold(me.number());
  const auto batch = make_batch(clouds, key), others = make_batch(clouds, key.fold(clouds));
  const auto wanted = batch.manager()->map(batch.key());
  const auto made = net->forward(batch).generated.cloud;
  const auto sums = me.sum(at::cat({shapes::overlap(made, *wanted), shapes::overlap(others, *wanted)}));
  net->train();
  const auto ratio = [&](int64_t first) { return (sums[first] / sums[first + 1]).item<double>(); };
  return {ratio(0), ratio(2)};
}

void train(const shapes::Options& options, const comm::Group& group) {
  const int64_t steps = std::stoll(options.at("--steps")), replicas = std::stoll(options.at("--replicas"));
  const int64_t clouds = std::stoll(options.at("--batch")) / replicas;  // of each replica
  require(clouds > 0, "options", "a batch of ", options.at("--batch"), " has none for some of ", replicas,
          " replicas, expected one each at least");
  const double divergence = std::stod(options.at("--divergence"));
  const auto team =
      parallel::Team::create({.replicas = replicas, .devices = options.at("--devices"), .group = group, .seed = 1});
  team.run([&](parallel::Replica& me) {
    models::Vae made(models::VaeOptions{.channels = {8, 16, 32, 64}});
    norm::convert_sync_batchnorm(made);
    auto net = me.share(made);
    auto optimizer = me.optimizer(parallel::Adam{.lr = 0.01});
    optimizer.schedule(parallel::cosine(steps, /*least=*/0.01));
    double sum = 0;
    for (int64_t step = 1; step <= steps; ++step) {
      const auto batch = make_batch(clouds, RandomKey{kTraining}.fold(step).fold(me.number()));
      const auto out = net->forward(batch, batch.key());
      const auto loss = models::occupancy_loss(out.generated) + divergence * models::latent_divergence(out.latent);
      sum += me.step(loss, optimizer).loss;
      if (step % 20 != 0) continue;
      if (me.number() == 0) std::printf("step %3ld: loss %.4f\n", static_cast<long>(step), sum / 20);
      sum = 0;
    }
    const auto [reconstructed, other] = evaluate(me, net, /*clouds=*/8);
    if (me.number() == 0)
      std::printf("%ld held-out shapes from their codes: IoU %.3f, with other shapes %.3f\n",
                  static_cast<long>(8 * replicas), reconstructed, other);
  });
}

int main(int argc, char** argv) try {
  pin_numerics();
  tune_allocator();
  const auto options = shapes::parse(
      argc, argv, "Learns codes of hollow balls, boxes and cylinders, and to make them again from these.",
      {{"--steps", "160"}, {"--batch", "16"}, {"--divergence", "0.01"}, {"--replicas", "4"}, {"--devices", "cpu"}});
  const auto group = comm::connect();
  train(options, group);
  group.finish();
} catch (const std::exception& error) {
  std::fprintf(stderr, "sparse_vae: %s\n", error.what());
  return 1;
}
