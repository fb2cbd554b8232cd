// SPDX-License-Identifier: Apache-2.0
// Every wire trains: LeNet learns a set of noisy patterns nearly as well as with whole gradients.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/wire.h"
#include "parallel/networks.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using torch::Tensor;

constexpr int64_t kSteps = 60, kBatch = 64, kReplicas = 4;

// Ten patterns of 7 x 7, enlarged to 28 x 28, under noise as strong as they are.
std::pair<Tensor, Tensor> batch(int64_t step) {
  const auto patterns = at::randn({10, 1, 7, 7}, at::detail::createCPUGenerator(1), at::TensorOptions());
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step + 2));
  const auto labels = at::randint(10, {kBatch}, generator, at::TensorOptions(at::kLong));
  const auto clean = patterns.index_select(0, labels).repeat_interleave(4, 2).repeat_interleave(4, 3);
  return {clean + at::randn({kBatch, 1, 28, 28}, generator, at::TensorOptions()), labels};
}

// The mean loss of the first and of the last ten steps.
std::pair<double, double> train(const Wire& wire) {
  double first = 0, last = 0;
  Team::create({.replicas = kReplicas, .devices = "cpu:2", .seed = 4}).run([&](Replica& me) {
    const auto task = lockstep::test::make_task("lenet");
    const auto net = me.share(task->network());
    auto optimizer = me.optimizer(Sgd{.lr = 0.02, .momentum = 0.8}, {.wire = wire});
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto [inputs, targets] = batch(step);
      const auto result = me.step(task->loss(*net, me.share_of(inputs), me.share_of(targets)), optimizer);
      if (me.number() != 0) continue;
      if (step < 10) first += result.loss / 10;
      if (step >= kSteps - 10) last += result.loss / 10;
    }
  });
  return {first, last};
}

// Losses in nats; a guess among ten costs 2.3.
TEST(Convergence, OfEveryWireIsNearThatOfWholeGradients) {
  pin_numerics();
  const auto [start, whole] = train(ExactWire{});
  EXPECT_LT(whole, 0.5);
  const std::pair<const char*, double> margins[] = {
      {"bf16", 0.05}, {"fp16", 0.05}, {"top_k:0.05", 0.1}, {"power_sgd:2", 0.1}};
  for (const auto& [name, margin] : margins) {
    const double end = train(parse_wire(name)).second;
    EXPECT_LT(end, whole + margin) << name;
    std::printf("%s: %.4f, whole gradients: %.4f\n", name, end, whole);
  }
  EXPECT_GT(start, 1.0);
}

}  // namespace
}  // namespace lockstep::parallel
