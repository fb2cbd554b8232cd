// SPDX-License-Identifier: Apache-2.0
// An epoch of LeNet on Fashion-MNIST as `lockstep train` runs it, data and all, against the same training in PyTorch;
// and, with --seeds N, the test accuracy of both after ten epochs from N seeds.

#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/train/trainer.h"
#include "support/interleave.h"
#include "support/peer.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

// Answers "seconds of training, share of them spent waiting for data, test accuracy": the line is a number of epochs,
// or, with ten epochs a run, a seed.
void serve(const std::vector<std::string>& words) {
  const std::string &folder = words.at(0), &devices = words.at(2);
  const int64_t replicas = std::stoll(words.at(1));
  const bool seeds = words.at(3) == "1";
  tune_allocator();
  pin_numerics();
  for (uint64_t number = 0; std::cin >> number;) {
    run::Config config{.init = "d2l", .data = "fashion-mnist:" + folder, .replicas = replicas, .lr = 0.2};
    config.devices = devices;
    config.quiet = true;
    config.epochs = seeds ? 10 : static_cast<int64_t>(number);
    config.seed = seeds ? number : 0;
    train::Task task = train::make_task(config);
    if (!seeds) task.test = nullptr;
    train::Trainer trainer(config, std::move(task), comm::Group{});
    double waited = 0, all = 0;
    trainer.on_step([&](const train::StepReport& step, const models::Classifier&) {
      waited += step.phases.data;
      all += step.phases.sum();
    });
    const auto outcome = trainer.run();
    std::cout << outcome.last.seconds << " " << waited / all << " "
              << (outcome.last.test ? outcome.last.test->accuracy : 0) << "\n"
              << std::flush;
  }
}

struct Contender {
  std::string name;
  std::unique_ptr<Peer> peer;
};

class Contenders {
 public:
  explicit Contenders(std::string folder) : folder_(std::move(folder)) {}

  void add_lockstep(const char* name, int replicas, const char* devices, bool seeds = false) {
    add(name, {text(serve_command(), "'", folder_, "' ", replicas, " ", devices, " ", seeds)});
  }
  void add_torch(const char* name, const char* way, int world, int threads, const char* format) {
    std::vector<std::string> commands;
    const int port = free_port();
    for (int rank = 0; rank < world; ++rank)
      commands.push_back(text("'" LOCKSTEP_PYTHON "' '" LOCKSTEP_PEERS "/torch_peer.py' ", way, " '", folder_, "' ",
                              rank, " ", world, " ", port, " ", threads, " ", format));
    add(name, commands);
  }
  std::vector<Contender>& all() { return all_; }

 private:
  void add(const char* name, const std::vector<std::string>& commands) {
    all_.push_back({name, std::make_unique<Peer>(commands)});
  }

  std::string folder_;
  std::vector<Contender> all_;
};

void compare_epochs(const std::string& folder, nlohmann::json& results) {
  Contenders made(folder);
  made.add_lockstep("8 replicas (the default), 2 threads", 8, "cpu:2");
  made.add_lockstep("2 replicas, 2 threads", 2, "cpu:2");
  made.add_lockstep("8 replicas, 1 thread", 8, "cpu:1");
  made.add_torch("PyTorch DDP, 2 processes, DataLoader", "loader", 2, 1, "contiguous");
  made.add_torch("PyTorch, 2 intra-op threads, data in memory", "memory", 1, 2, "contiguous");
  made.add_torch("... channels-last", "memory", 1, 2, "channels_last");
  made.add_torch("... channels-last, torch.compile", "memory", 1, 2, "compiled_channels_last");
  std::vector<std::function<double()>> runs;
  std::printf("LeNet (d2l) on Fashion-MNIST, SGD, batch 256: an epoch of 60,000 images\n");
  for (auto& contender : made.all())
    runs.push_back([&] {
      const double taken = contender.peer->run(1);
      std::printf("  %-44s %6.2f s\n", contender.name.c_str(), taken);
      std::fflush(stdout);
      return taken;
    });
  const auto seconds = interleave(5, runs);
  std::printf("in the middle of the rounds:\n");
  for (size_t c = 0; c < made.all().size(); ++c) {
    const auto& answer = made.all()[c].peer->answer();
    const double times = ratio(seconds[c], seconds[0]);
    std::printf("  %-44s %6.2f s, %5.2f times the first", made.all()[c].name.c_str(), median(seconds[c]), times);
    if (answer.size() > 1) std::printf("; %.2f %% of it waiting for data", 100 * answer[1]);
    std::printf("\n");
    results.push_back({{"contender", made.all()[c].name},
                       {"seconds_per_epoch", median(seconds[c])},
                       {"times_first", times},
                       {"waiting_for_data", answer.size() > 1 ? nlohmann::json(answer[1]) : nlohmann::json()}});
  }
  std::fflush(stdout);
}

void compare_accuracy(const std::string& folder, int seeds, nlohmann::json& results) {
  Contenders made(folder);
  made.add_lockstep("Lockstep", 8, "cpu:2", true);
  made.add_torch("PyTorch", "accuracy", 1, 2, "channels_last");
  std::printf("the same, 10 epochs: test accuracy for seeds 0 to %d\n", seeds - 1);
  for (auto& [name, peer] : made.all()) {
    std::printf("  %-10s", name.c_str());
    double sum = 0;
    nlohmann::json each = nlohmann::json::array();
    for (int seed = 0; seed < seeds; ++seed) {
      peer->run(seed);
      const double accuracy = peer->answer().back();
      std::printf(" %.4f", accuracy);
      std::fflush(stdout);
      sum += accuracy;
      each.push_back(accuracy);
    }
    std::printf(", mean %.4f\n", sum / seeds);
    results.push_back({{"contender", name}, {"accuracies", each}});
  }
}

nlohmann::json compare(const Arguments& arguments) {
  nlohmann::json results = nlohmann::json::array();
  if (const auto folder = find_fashion_mnist(arguments)) {
    if (const int64_t seeds = arguments.number("--seeds", 0); seeds > 0)
      compare_accuracy(*folder, static_cast<int>(seeds), results);
    else
      compare_epochs(*folder, results);
  }
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(
      argc, argv,
      {.measures = "Epochs of LeNet on Fashion-MNIST, against PyTorch.",
       .measure = compare,
       .options = {fashion_mnist_option, {"--seeds", "N", "accuracies with so many seeds instead of times"}},
       .serve = serve});
}
