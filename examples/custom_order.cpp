// SPDX-License-Identifier: Apache-2.0
// Your own order of examples, here a curriculum: bright images come before dark ones, shuffled within neighbourhoods
// that grow from epoch to epoch. The order says which example comes when, and the loader says which replica trains on
// it. So with any order the ledger finds each example used once, and the weights are the same on any number of devices.
//
//     custom_order fashion-mnist 2 cpu:2       data, epochs, devices
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "lockstep/data/ledger.h"
#include "lockstep/data/loader.h"
#include "lockstep/metrics/mean.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/numerics/permutation.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/run/weights.h"

using namespace lockstep;

// The examples, bright ones first.
std::vector<int64_t> by_brightness(const data::Dataset& dataset) {
  std::vector<int64_t> ids(dataset.size());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  std::vector<float> image(dataset.info().input_numel()), brightness(dataset.size());
  std::vector<int64_t> target(1);
  for (const int64_t& id : ids) {
    dataset.read({&id, 1}, image.data(), target.data());
    brightness[id] = std::accumulate(image.begin(), image.end(), 0.0f);
  }
  std::ranges::stable_sort(ids, [&](int64_t a, int64_t b) { return brightness[a] > brightness[b]; });
  return ids;
}

data::Order curriculum(const data::Dataset& dataset, uint64_t seed) {
  const int64_t size = dataset.size();
  return data::Order::of(size, size, [=, sorted = by_brightness(dataset)](int64_t epoch, int64_t position) {
    const int64_t width = std::min(size, int64_t{64} << std::min<int64_t>(2 * epoch, 40));
    const int64_t begin = position / width * width, count = std::min(width, size - begin);
    const RandomKey key = RandomKey{seed}.fold(static_cast<uint64_t>(epoch)).fold(static_cast<uint64_t>(begin));
    return sorted[begin + KeyedPermutation(key, count)(position - begin)];
  });
}

int main(int argc, char** argv) {
  const std::string spec = argc > 1 ? argv[1] : "fashion-mnist", devices = argc > 3 ? argv[3] : "cpu";
  const int64_t epochs = argc > 2 ? std::stoll(argv[2]) : 2;
  const auto dataset = data::open_dataset(spec, data::Subset::train);
  const data::Order order = curriculum(*dataset, 0);
  std::printf("%s, each once: %s\n", order.describe().c_str(), order.exactly_once(0) ? "yes" : "no");

  const auto team = parallel::Team::create({.replicas = 8, .devices = devices});
  data::Loader loader(
      dataset, order,
      {.batch = 64, .replicas = 8, .block = team.block(), .transforms = data::Transforms::parse("normalize")});
  data::Ledger ledger(dataset->size());
  team.run([&](parallel::Replica& me) {
    auto net = me.share(torch::nn::Sequential(
        torch::nn::Flatten(), torch::nn::Linear(dataset->info().input_numel(), dataset->info().classes)));
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05});
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      metrics::Mean loss;
      for (const data::Batch& batch : loader.share(me.number())) {
        const at::Tensor mine = batch.count > 0
                                    ? torch::nn::functional::cross_entropy(net->forward(batch.inputs), batch.targets)
                                    : at::Tensor();
        const auto result = me.step(mine, optimizer, static_cast<double>(batch.count));
        loss.add(result.loss, result.weight);
        ledger.add(batch);
      }
      me.barrier();  // all have added to the ledger
      if (me.number() == 0) {
        std::printf("epoch %ld: loss %.4f; %s\n", static_cast<long>(epoch), loss.value(),
                    ledger.report().to_string().c_str());
        ledger.clear();
      }
      me.barrier();
    }
    if (me.number() != 0) return;
    std::printf("weights %s\n", run::hash_of(models::state_dict(*net)).substr(0, 16).c_str());
  });
}
