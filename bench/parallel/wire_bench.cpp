// SPDX-License-Identifier: Apache-2.0
// What compressing gradients costs and saves: LeNet on Fashion-MNIST, one epoch with each wire, two processes. Loss,
// accuracy on the test set, bytes between processes.
//   parallel_wire_bench [--data FOLDER] [--json FILE]
#include <torch/nn/functional/loss.h>
#include <zlib.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/allocator.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/numerics/permutation.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/numerics/random.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "parallel/networks.h"
#include "support/peer.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

using torch::Tensor;

constexpr int64_t kBatch = 256;

// An IDX file as it comes: a header of `skip` bytes, then bytes.
Tensor read_idx(const std::string& file, int64_t skip, const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  count += skip;
  auto bytes = torch::empty({count}, torch::kByte);
  const gzFile in = gzopen(file.c_str(), "rb");
  require(in != nullptr, "wire_bench", "cannot open '", file, "'");
  const int64_t got = gzread(in, bytes.data_ptr(), static_cast<unsigned>(count));
  gzclose(in);
  require(got == count, "wire_bench", "'", file, "' holds ", got, " bytes, expected ", count);
  return bytes.slice(0, skip).view(sizes).clone();
}

struct Images {
  Tensor pixels, labels;
};

Images read_images(const std::string& folder, const std::string& part, int64_t count) {
  const auto pixels = read_idx(folder + "/" + part + "-images-idx3-ubyte.gz", 16, {count, 1, 28, 28});
  const auto labels = read_idx(folder + "/" + part + "-labels-idx1-ubyte.gz", 8, {count});
  return {pixels.to(torch::kFloat).div_(255).sub_(0.2860).div_(0.3530), labels.to(torch::kLong)};
}

// Answers: seconds a step, the mean loss of the last 50 steps, accuracy, bytes a step that one process sends.
void serve(const std::vector<std::string>& words) {
  const std::string &wire = words.at(0), &folder = words.at(1);
  tune_allocator();
  pin_numerics();
  const auto train = read_images(folder, "train", 60000), test = read_images(folder, "t10k", 10000);
  const auto order = permutation_(torch::empty({60000}, torch::kLong), RandomKey{1, 1}, 60000);
  const auto team = parallel::Team::create({.replicas = 4, .devices = "cpu:1", .group = comm::connect(), .seed = 1});
  team.run([&](parallel::Replica& me) {
    auto net = me.share(LeNet());
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9}, {.wire = parallel::parse_wire(wire)});
    int64_t steps = 0;
    if (me.number() == team.block().begin) std::cin >> steps;
    steps = static_cast<int64_t>(me.sum(torch::full({1}, static_cast<double>(steps))).item<double>()) /
            team.placement().processes();
    const int64_t before = team.bytes_sent();
    const auto start = std::chrono::steady_clock::now();
    double loss = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const auto ids = me.share_of(order.slice(0, step * kBatch % 59904, step * kBatch % 59904 + kBatch));
      const auto result = me.step(torch::nn::functional::cross_entropy(net->forward(train.pixels.index_select(0, ids)),
                                                                       train.labels.index_select(0, ids)),
                                  optimizer);
      if (step >= steps - 50) loss += result.loss / 50;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double bytes = static_cast<double>(team.bytes_sent() - before) / static_cast<double>(steps);
    const auto right = me.evaluate(10000, 500, [&](Interval interval) {
      const auto logits = net->forward(test.pixels.slice(0, interval.begin, interval.end));
      return logits.argmax(1).eq(test.labels.slice(0, interval.begin, interval.end)).sum();
    });
    if (me.number() == 0)
      std::cout << seconds / static_cast<double>(steps) << " " << loss << " " << right.item<double>() / 1e4 << " "
                << bytes << "\n"
                << std::flush;
  });
}

nlohmann::json compare(const Arguments& arguments) {
  nlohmann::json results = nlohmann::json::array();
  if (const auto folder = find_fashion_mnist(arguments)) {
    std::printf("LeNet on Fashion-MNIST, 4 replicas on 2 processes, batch %ld, one epoch\n", static_cast<long>(kBatch));
    for (const char* wire : {"none", "bf16", "fp16", "top_k:0.01", "top_k:0.05", "power_sgd:1", "power_sgd:4"}) {
      Peer peer(serve_commands(2, text(wire, " '", *folder, "'")));
      peer.run(60000 / kBatch);
      const auto& answer = peer.answer();
      require(answer.size() == 4, "wire_bench", "a contender answered ", answer.size(), " numbers, expected 4");
      std::printf("  %-12s loss %.4f, accuracy %.4f, %8.1f KiB a step and process, %6.2f ms a step\n", wire, answer[1],
                  answer[2], answer[3] / 1024, 1e3 * answer[0]);
      std::fflush(stdout);
      results.push_back({{"wire", wire},
                         {"loss", answer[1]},
                         {"accuracy", answer[2]},
                         {"bytes_per_step", answer[3]},
                         {"ms_per_step", 1e3 * answer[0]}});
    }
  }
  return results;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "What processes send each other, in several ways: loss, accuracy, bytes and time.",
                      .measure = compare,
                      .options = {fashion_mnist_option},
                      .serve = serve});
}
