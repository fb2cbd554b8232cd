// SPDX-License-Identifier: Apache-2.0
// Dive into Deep Learning 12.5 names three ways to divide a training over devices: layers, channels, and the batch.
// Here all three are placements of one recipe, and end in the same weights.
//   three_ways [STEPS]
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/context/stages.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/numerics/random.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/run/weights.h"
using namespace lockstep;

// Where it may be cut is said once, in stages(); what a later stage needs besides travels under a name of its own.
struct NetImpl : torch::nn::Cloneable<NetImpl>, Staged {
  NetImpl() { reset(); }
  void reset() override {
    conv1 = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)));
    conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 3).padding(1)));
    conv3 = register_module("conv3", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 3).padding(1)));
    dropout = register_module("dropout", torch::nn::Dropout(0.2));
    fc = register_module("fc", torch::nn::Linear(16 * 8 * 8, 10));
  }
  std::vector<Stage> stages() override {
    return {
        {"conv1",
         [this](Bundle& b) {
           b.put(torch::relu(conv1(b.get<at::Tensor>())));
           b.put("skip", b.get<at::Tensor>());
         }},
        {"conv2", [this](const at::Tensor& x) { return torch::relu(conv2(x)); }},
        {"conv3", [this](Bundle& b) { b.put(torch::relu(conv3(b.get<at::Tensor>()) + b.take<at::Tensor>("skip"))); }},
        {"fc", [this](const at::Tensor& x) { return fc(dropout(torch::avg_pool2d(x, 2).flatten(1))); }}};
  }
  at::Tensor forward(const at::Tensor& x) { return fold<at::Tensor>(stages(), x); }

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Net);

// The hash of the weights that a placement ends with. The replicas and the slices belong to the recipe; where it runs
// does not.
std::string train(const std::string& devices, const parallel::Split& split, int steps) {
  std::string hash;
  const auto team = parallel::Team::create({.replicas = 8, .devices = devices, .slices = 2, .split = split});
  team.run([&](parallel::Replica& me) {
    auto net = me.share(Net());
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9});
    for (int step = 0; step < steps; ++step) {
      const RandomKey key = RandomKey{7}.fold(static_cast<uint64_t>(step));
      const auto x = me.share_of(normal_(torch::empty({64, 1, 16, 16}), key));
      const auto y = (x.mean({1, 2, 3}) * 100).floor().remainder(10).to(torch::kLong);
      me.step(torch::nn::functional::cross_entropy(net->forward(x), y), optimizer, static_cast<double>(x.size(0)));
    }
    if (me.number() != 0) return;
    run::Tensors weights;
    for (const auto& item : net->named_parameters()) weights[item.key()] = item.value().detach();
    hash = run::hash_of(weights);
  });
  return hash;
}

int main(int argc, char** argv) {
  pin_numerics();
  tune_allocator();
  const int steps = argc > 1 ? std::stoi(argv[1]) : 20;
  const auto print = [](const char* way, const std::string& hash) {
    std::printf("%-34s weights %s\n", way, hash.substr(0, 16).c_str());
    return hash;
  };
  const std::string whole = print("one device", train("cpu:1", {}, steps));
  bool same = print("the batch over two devices", train("cpu:2", {}, steps)) == whole;
  same &= print("layers over two devices", train("cpu:2", {.parts = 2}, steps)) == whole;
  same &= print("channels over two devices", train("cpu:2", {.sharers = 2}, steps)) == whole;
  same &= print("layers and channels over four", train("cpu:4", {.parts = 2, .sharers = 2}, steps)) == whole;
  std::printf("%s\n", same ? "identical" : "not identical");
  return same ? 0 : 1;
}
