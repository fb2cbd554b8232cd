// SPDX-License-Identifier: Apache-2.0
// Trains one network under one placement and prints the SHA-256 of all that training on depends on. The test starts
// it, alone or under `lockstep run`.
//   contract_run TASK [--replicas R] [--threads K] [--blocks A,B,C] [--from STEP] [--to STEP] [--load FILE]
//                [--save FILE] [--order ring] [--rotate N]
#include <torch/serialize.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>

#include "lockstep/comm/connect.h"
#include "lockstep/core/error.h"
#include "lockstep/core/numerics.h"
#include "lockstep/core/sha256.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/parallel/team.h"
#include "parallel/networks.h"

namespace lockstep::test {
namespace {

using torch::Tensor;
using Options = std::map<std::string, std::string>;
using State = std::map<std::string, Tensor>;

Options parse(int argc, char** argv) {
  require(argc >= 2 && argc % 2 == 0, "contract_run", "got ", argc - 1, " words, expected TASK and pairs");
  Options options{{"--replicas", "8"}, {"--threads", "1"}, {"--from", "0"}, {"--to", "20"}, {"--rotate", "0"}};
  for (int i = 2; i < argc; i += 2) options[argv[i]] = argv[i + 1];
  return options;
}

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) out.push_back(std::stoll(part));
  return out;
}

State state_of(const torch::nn::Module& network, const parallel::Optimizer& optimizer) {
  State state;
  for (const auto& item : network.named_parameters()) state["weight." + item.key()] = item.value().detach();
  for (const auto& item : network.named_buffers()) state["buffer." + item.key()] = item.value();
  for (const auto& [name, tensor] : optimizer.state_dict()) state["optimizer." + name] = tensor;
  return state;
}

std::string hash(const State& state) {
  Sha256 sha;
  for (const auto& [name, tensor] : state) {
    const std::string head = text(name, " ", tensor.scalar_type(), tensor.sizes());
    sha.update(head.data(), head.size());
    const auto bytes = tensor.contiguous();
    sha.update(bytes.const_data_ptr(), bytes.nbytes());
  }
  return sha.hex();
}

void save(const std::string& file, const State& state) {
  torch::serialize::OutputArchive archive;
  for (const auto& [name, tensor] : state) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '.', '/');
    archive.write(key, tensor.clone());
  }
  archive.save_to(file);
}

// Weights and buffers into a network that is not shared yet.
void load(torch::serialize::InputArchive& archive, torch::nn::Module& network) {
  const auto read = [&](const std::string& kind, const std::string& name, Tensor& into) {
    std::string key = kind + "/" + name;
    std::replace(key.begin(), key.end(), '.', '/');
    Tensor value;
    archive.read(key, value);
    const torch::NoGradGuard no_grad;
    into.copy_(value);
  };
  for (auto& item : network.named_parameters()) read("weight", item.key(), item.value());
  for (auto& item : network.named_buffers()) read("buffer", item.key(), item.value());
}

State load(torch::serialize::InputArchive& archive, const State& like) {
  State state;
  for (const auto& [name, tensor] : like) {
    std::string key = "optimizer/" + name;
    std::replace(key.begin(), key.end(), '.', '/');
    archive.read(key, state[name]);
  }
  return state;
}

void train(const std::string& name, const Options& options, const comm::Group& group) {
  const auto task = make_task(name);
  const bool ring = options.contains("--order");
  const auto team = parallel::Team::create(
      {.replicas = std::stoll(options.at("--replicas")),
       .devices = "cpu:" + options.at("--threads"),
       .group = group,
       .blocks = options.contains("--blocks") ? numbers(options.at("--blocks")) : std::vector<int64_t>{},
       .seed = 7,
       .order = ring ? parallel::Order::ring : parallel::Order::canonical});
  team.run([&](parallel::Replica& me) {
    auto made = task->network();
    parallel::convert_sync_batchnorm(*made);
    torch::serialize::InputArchive archive;
    if (options.contains("--load")) {
      archive.load_from(options.at("--load"));
      load(archive, *made);
    }
    const auto network = me.share(made);
    auto optimizer = me.optimizer(parallel::AdamW{.lr = 3e-3});
    if (options.contains("--load")) {
      if (me.number() == team.block().begin) optimizer.load_state_dict(load(archive, optimizer.state_dict()));
      me.set_steps(std::stoll(options.at("--from")));
    }
    for (int64_t step = std::stoll(options.at("--from")); step < std::stoll(options.at("--to")); ++step) {
      auto [inputs, targets] = task->batch(step);
      // Other replicas for the same examples: another order of addition.
      const int64_t shift = std::stoll(options.at("--rotate")) * inputs.size(0) / me.replicas();
      inputs = me.share_of(inputs.roll(shift, 0)).clone();
      targets = me.share_of(targets.roll(shift, 0)).clone();
      const auto result =
          me.step(task->loss(*network, inputs, targets), optimizer, static_cast<double>(inputs.size(0)));
      if (me.number() == 0) std::fprintf(stderr, "step %ld: loss %.9g\n", static_cast<long>(step), result.loss);
    }
    me.watch_divergence(optimizer, 0, true);
    if (me.number() != 0) return;
    const State state = state_of(*network, optimizer);
    if (options.contains("--save")) save(options.at("--save"), state);
    std::printf("%s\n", hash(state).c_str());
  });
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  try {
    lockstep::pin_numerics();
    const auto options = lockstep::test::parse(argc, argv);
    const auto group = lockstep::comm::connect();
    lockstep::test::train(argv[1], options, group);
    group.finish();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "contract_run: %s\n", error.what());
    return 1;
  }
}
