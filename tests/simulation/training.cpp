// SPDX-License-Identifier: Apache-2.0
#include "simulation/training.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <tuple>

#include "lockstep/base/detail/sha256.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/philox.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/rules/sgd.h"
#include "lockstep/parallel/team.h"

namespace lockstep::simulation {
namespace {

constexpr int64_t kInputs = 3, kWidth = 5;

torch::nn::Sequential make_network(bool batch_norm) {
  torch::nn::Sequential network(torch::nn::Linear(kInputs, kWidth));
  if (batch_norm) network->push_back(torch::nn::BatchNorm1d(kWidth));
  network->push_back(torch::nn::Linear(kWidth, 2));
  norm::convert_sync_batchnorm(*network);
  return network;
}

at::Tensor inputs_of(int64_t step, int64_t replica) {
  const int64_t rows = 2 + (step + replica) % 3;  // torch refuses to normalise one
  at::Tensor inputs = at::empty({rows, kInputs});
  float* const at = inputs.mutable_data_ptr<float>();
  const RandomKey key = RandomKey{7}.fold(step).fold(replica);
  for (int64_t i = 0; i < inputs.numel(); ++i) at[i] = static_cast<float>(key.block(i).word[0]) * 0x1p-31F - 1;
  return inputs;
}

std::string hash_of(const torch::nn::Module& network) {
  Sha256 hash;
  for (const auto& tensors : {network.parameters(), network.buffers()})
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor flat = tensor.detach().contiguous();
      hash.update(flat.const_data_ptr(), flat.nbytes());
    }
  return hash.hex();
}

}  // namespace

bool Recipe::operator<(const Recipe& other) const {
  return std::tie(replicas, batch_norm, divides_state, steps) <
         std::tie(other.replicas, other.batch_norm, other.divides_state, other.steps);
}

std::string train(const Recipe& recipe, const comm::Group& group, const std::vector<int64_t>& blocks, int devices) {
  const auto team = parallel::Team::create({.replicas = recipe.replicas,
                                            .devices = "cpu:" + std::to_string(devices),
                                            .group = group,
                                            .blocks = blocks,
                                            .seed = 3});
  std::string hash;
  team.run([&](parallel::Replica& me) {
    auto network = me.share(make_network(recipe.batch_norm));
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.1, .momentum = 0.9}, {.divide_state = recipe.divides_state});
    for (int64_t step = 0; step < recipe.steps; ++step) {
      const at::Tensor inputs = inputs_of(step, me.number());
      me.step(network->forward(inputs).square().mean(), optimizer, static_cast<double>(inputs.size(0)));
    }
    if (me.number() == team.block().begin) hash = hash_of(*network);
  });
  return hash;
}

}  // namespace lockstep::simulation
