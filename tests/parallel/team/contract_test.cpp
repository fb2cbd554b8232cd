// SPDX-License-Identifier: Apache-2.0
// The promise: the placement of R replicas changes nothing. One network, 20 steps, R = 8; threads, processes and a
// resumed run must end in the same bits, and a broken order of addition must not. Every run has processes of its own,
// forked from this program, which starts no thread and touches no tensor.
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "lockstep/base/detail/sha256.h"
#include "lockstep/base/error.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "parallel/networks.h"
#include "support/processes.h"
#include "support/team/placements.h"
#include "support/temporary_folder.h"

namespace lockstep::test {
namespace {

using torch::Tensor;

struct Training {
  Placed placed;
  int64_t from = 0;
  int64_t to = 20;
  std::string load = {};  // a file that a run saved
  std::string save = {};
  parallel::Order order = parallel::Order::canonical;
  int64_t rotate = 0;  // other replicas for the same examples: another order of addition
};

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

// An archive takes dots for folders of its own.
std::string key_of(std::string name) {
  std::ranges::replace(name, '.', '/');
  return name;
}

void save(const std::string& file, const State& state) {
  torch::serialize::OutputArchive archive;
  for (const auto& [name, tensor] : state) archive.write(key_of(name), tensor);
  archive.save_to(file);
}

Tensor read(torch::serialize::InputArchive& archive, const std::string& name) {
  Tensor value;
  archive.read(key_of(name), value);
  return value;
}

// Weights and buffers into a network that is not shared yet.
void load(torch::serialize::InputArchive& archive, torch::nn::Module& network) {
  const torch::NoGradGuard no_grad;
  for (auto& item : network.named_parameters()) item.value().copy_(read(archive, "weight." + item.key()));
  for (auto& item : network.named_buffers()) item.value().copy_(read(archive, "buffer." + item.key()));
}

void load(torch::serialize::InputArchive& archive, parallel::Optimizer& optimizer) {
  std::map<std::string, Tensor> state;
  for (const auto& [name, tensor] : optimizer.state_dict()) state[name] = read(archive, "optimizer." + name);
  optimizer.load_state_dict(state);
}

// What all that training depends on hashes to; empty in a process without replica 0.
std::string train(const Task& task, const Training& run, const comm::Group& group) {
  const auto team = parallel::Team::create({.replicas = 8,
                                            .devices = run.placed.devices,
                                            .group = group,
                                            .blocks = run.placed.blocks,
                                            .seed = 7,
                                            .order = run.order});
  std::string out;
  team.run([&](parallel::Replica& me) {
    auto made = task.network();
    norm::convert_sync_batchnorm(*made);
    torch::serialize::InputArchive archive;
    if (!run.load.empty()) {
      archive.load_from(run.load);
      load(archive, *made);
    }
    const auto network = me.share(made);
    auto optimizer = me.optimizer(parallel::AdamW{.lr = 3e-3});
    if (!run.load.empty()) {
      if (me.number() == team.block().begin) load(archive, optimizer);
      me.set_steps(run.from);
      me.barrier();
    }
    for (int64_t step = run.from; step < run.to; ++step) {
      auto [inputs, targets] = task.batch(step);
      const int64_t shift = run.rotate * inputs.size(0) / me.replicas();
      inputs = me.share_of(inputs.roll(shift, 0)).clone();
      targets = me.share_of(targets.roll(shift, 0)).clone();
      me.step(task.loss(*network, inputs, targets), optimizer, static_cast<double>(inputs.size(0)));
    }
    me.watch_divergence(optimizer, 0, true);
    const State state = state_of(me, *network, optimizer);
    if (me.number() != 0) return;
    if (!run.save.empty()) save(run.save, state);
    out = hash(state);
  });
  return out;
}

std::string hash_after(const std::string& task, const Training& run) {
  const TemporaryFolder folder;
  const std::string job = new_job();
  Processes processes(run.placed.ranks, [&](int rank) {
    pin_numerics();
    const comm::Group group = join(job, rank, run.placed.ranks);
    const std::string hash = train(*make_task(task), run, group);
    group.finish();
    if (!hash.empty()) std::ofstream(folder.file("hash")) << hash;
  });
  for (int rank = 0; rank < run.placed.ranks; ++rank) EXPECT_EQ(processes.wait(rank, 300), 0) << "process " << rank;
  std::string hash;
  std::ifstream(folder.file("hash")) >> hash;
  EXPECT_EQ(hash.size(), 64u);
  return hash;
}

// What every placement must end in: eight replicas on two threads.
const std::string& expected(const std::string& task) {
  static std::map<std::string, std::string> known;
  auto& hash = known[task];
  if (hash.empty()) hash = hash_after(task, {{1, "cpu:2"}});
  return hash;
}

class Contract : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_the_same_bits(const Training& run) {
    EXPECT_EQ(hash_after(GetParam(), run), expected(GetParam())) << run.placed;
  }
};

TEST_P(Contract, ThreadsDoNotChangeABit) {
  for (const char* devices : {"cpu:1", "cpu:8"}) expect_the_same_bits({{1, devices}});
}

TEST_P(Contract, ProcessesDoNotChangeABit) {
  if (!joins_ranks()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  expect_the_same_bits({{2, "cpu:2"}});
  expect_the_same_bits({{3, "cpu:1", {3, 3, 2}}});
  expect_the_same_bits({{8, "cpu:1"}});
}

TEST_P(Contract, AResumedRunGoesOnAsIfNothingHadHappened) {
  const TemporaryFolder folder;
  const Placed first = joins_ranks() ? Placed{3, "cpu:1", {1, 5, 2}} : Placed{1, "cpu:8"};
  hash_after(GetParam(), {.placed = first, .to = 10, .save = folder.file("half.pt")});
  expect_the_same_bits({.placed = {1, "cpu:2"}, .from = 10, .load = folder.file("half.pt")});
}

TEST_P(Contract, ABrokenOrderOfAdditionShows) {
  EXPECT_NE(hash_after(GetParam(), {.placed = {1, "cpu:2"}, .rotate = 1}), expected(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(, Contract, ::testing::Values("lenet", "resnet18", "lstm", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

// What the canonical order is for: the ring adds up in an order that follows the processes.
TEST(ContractOfRing, IsNone) {
  if (!joins_ranks()) GTEST_SKIP() << "this build has no Gloo (headers: libgloo-dev)";
  EXPECT_NE(hash_after("lenet", {.placed = {3, "cpu:1", {3, 3, 2}}, .order = parallel::Order::ring}),
            expected("lenet"));
}

}  // namespace
}  // namespace lockstep::test
