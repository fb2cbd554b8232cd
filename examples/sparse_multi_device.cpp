// SPDX-License-Identifier: Apache-2.0
// A network of sparse convolutions that tells shapes apart, trained on two devices in two ways: spelled out, step by
// step, and as one program that every replica runs. Both have a mini-batch a device and synchronised batch norms.
//   sparse_multi_device [DEVICES] [STEPS]
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <cstdio>

#include "lockstep/base/allocator.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/numerics/random.h"
#include "lockstep/parallel/functional.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/sparse/nn/norm.h"
#include "lockstep/sparse/nn/pointwise.h"
#include "lockstep/sparse/nn/pooling.h"
#include "lockstep/sparse/tensor_field.h"
using namespace lockstep;

constexpr int64_t kReplicas = 2, kClouds = 8, kPoints = 400, kClasses = 3;

struct NetworkImpl : torch::nn::Cloneable<NetworkImpl> {
  NetworkImpl() { NetworkImpl::reset(); }
  void reset() override {
    using namespace sparse::nn;
    const KernelOptions halving{.kernel_size = {3}, .stride = {2}};
    conv1 = register_module("conv1", Convolution(ConvolutionOptions{1, 32, halving}));
    bn1 = register_module("bn1", BatchNorm(32));
    conv2 = register_module("conv2", Convolution(ConvolutionOptions{32, 64, halving}));
    bn2 = register_module("bn2", BatchNorm(64));
    pooling = register_module("pooling", GlobalAvgPooling());
    linear = register_module("linear", Linear(64, kClasses));
    relu = register_module("relu", ReLU());
  }
  sparse::SparseTensor forward(const sparse::SparseTensor& x) {
    return linear(pooling(relu(bn2(conv2(relu(bn1(conv1(x))))))));
  }
  sparse::nn::Convolution conv1{nullptr}, conv2{nullptr};
  sparse::nn::BatchNorm bn1{nullptr}, bn2{nullptr};
  sparse::nn::GlobalAvgPooling pooling{nullptr};
  sparse::nn::Linear linear{nullptr};
  sparse::nn::ReLU relu{nullptr};
};
TORCH_MODULE(Network);

struct MiniBatch {
  sparse::SparseTensor clouds;
  at::Tensor labels;
};

/// Points on spheres, on the sides of cubes and in balls, of any size, in voxels: drawn from (step, device).
MiniBatch load_mini_batch(int64_t step, int64_t device) {
  std::vector<at::Tensor> clouds, features;
  std::vector<int64_t> labels;
  for (int64_t cloud = 0; cloud < kClouds; ++cloud) {
    const RandomKey key = RandomKey{7}.fold(step).fold(device).fold(cloud);
    const auto label = static_cast<int64_t>(below(key.fold(0), 0, kClasses));
    const double size = 6 + 4 * uniform(key.fold(0), 1);
    const at::Tensor points = normal_(at::empty({kPoints, 3}), key.fold(1));
    const at::Tensor norms = label == 1 ? std::get<0>(points.abs().max(1, true)) : points.norm(2, 1, true);
    const at::Tensor radii = label == 2 ? uniform_(at::empty({kPoints, 1}), key.fold(2)).pow(1.0 / 3) : norms / norms;
    const auto voxels = sparse::sparse_quantize(size * points * radii / norms);
    clouds.push_back(voxels.coordinates);
    features.push_back(at::ones({voxels.coordinates.size(0), 1}));
    labels.push_back(label);
  }
  const auto batch = sparse::sparse_collate(clouds, features);
  return {sparse::SparseTensor(batch.features, batch.coordinates), at::tensor(labels)};
}

/// One program says what happens on every device.
double train_spelled_out(const Network& network, int steps) {
  const auto devices = parse_devices("cpu:" + std::to_string(kReplicas));
  norm::convert_sync_batchnorm(network);
  torch::nn::CrossEntropyLoss criterion;
  auto criterions = parallel::replicate(criterion, devices);
  torch::optim::SGD optimizer(network->parameters(), torch::optim::SGDOptions(0.1));
  double last = 0;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    std::vector<sparse::SparseTensor> inputs;
    std::vector<at::Tensor> labels;
    for (int64_t device = 0; device < kReplicas; ++device) {
      auto batch = load_mini_batch(step, device);
      inputs.push_back(batch.clouds);
      labels.push_back(batch.labels);
    }
    auto replicas = parallel::replicate(network, devices);
    const auto outputs = parallel::parallel_apply(replicas, inputs);
    std::vector<std::tuple<at::Tensor, at::Tensor>> pairs;
    for (int64_t device = 0; device < kReplicas; ++device)
      pairs.emplace_back(outputs[device].features(), labels[device]);
    const auto losses = parallel::parallel_apply(criterions, pairs);
    const auto loss = parallel::gather(losses, devices[0]).mean();
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step % 10 == 0) std::printf("  step %2d: loss %.4f\n", step, last);
  }
  return last;
}

/// Every replica runs this; the team sees to the rest, on whatever devices there are.
double train_as_a_team(const Network& start, const std::string& devices, int steps) {
  const auto team = parallel::Team::create({.replicas = kReplicas, .devices = devices});
  double last = 0;
  team.run([&](parallel::Replica& me) {
    auto copy = Network(std::dynamic_pointer_cast<NetworkImpl>(start->clone()));
    norm::convert_sync_batchnorm(copy);
    auto network = me.share(copy);
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.1});
    torch::nn::CrossEntropyLoss criterion;
    for (int step = 0; step < steps; ++step) {
      const auto batch = load_mini_batch(step, me.number());
      const auto loss = criterion(network->forward(batch.clouds).features(), batch.labels);
      const double mean = me.step(loss, optimizer).loss;
      if (me.number() > 0) continue;
      last = mean;
      if (step % 10 == 0) std::printf("  step %2d: loss %.4f\n", step, last);
    }
  });
  return last;
}

int main(int argc, char** argv) {
  pin_numerics();
  tune_allocator();
  const RandomScope random(RandomKey{1});
  const Network network, start(std::dynamic_pointer_cast<NetworkImpl>(network->clone()));
  const int steps = argc > 2 ? std::stoi(argv[2]) : 40;
  std::printf("spelled out\n");
  const double one = train_spelled_out(network, steps);
  std::printf("as a team\n");
  const double other = train_as_a_team(start, argc > 1 ? argv[1] : "cpu", steps);
  const bool same = std::abs(one - other) < 1e-3;
  std::printf("%s after %d steps\n", same ? "the same loss" : "losses that differ", steps);
  return same ? 0 : 1;
}
