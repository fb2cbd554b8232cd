// SPDX-License-Identifier: Apache-2.0
// Every network in a team: R replicas compute what one does on the joined batch, and the same bits in every placement.
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include "lockstep/models/registry.h"
#include "lockstep/models/state_dict.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/random.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"

namespace lockstep::models {
namespace {

using parallel::Replica;
using parallel::Team;

std::vector<std::string> names() {
  const Registry registry = builtin();
  std::vector<std::string> all;
  for (const Entry& entry : registry.entries())
    if (entry.labels == Labels::examples) all.push_back(entry.name);  // those of clouds: train/clouds_test.cpp
  return all;
}

Options small(const std::string& name, bool dropout) {
  Options options{.input = {2, 16, 16}, .classes = 5};
  const Registry registry = builtin();
  for (const Setting& setting : registry.find(name).settings) {
    if (setting.name == "width") options.settings["width"] = "0.0625";
    if (setting.name == "features") options.settings["features"] = "2";
    if (setting.name == "dropout") options.settings["dropout"] = dropout ? "0.25" : "0";
  }
  return options;
}

struct Training {
  std::string model;
  int64_t replicas = 1;
  const char* devices = "cpu:1";
  at::ScalarType dtype = at::kFloat;
  int64_t examples = 12;
  int64_t steps = 1;
  bool dropout = false;
  parallel::MemoryFormat format = parallel::MemoryFormat::automatic;
  norm::BatchNormMode norms = norm::BatchNormMode::synchronised;
  int64_t slices = 1;
  parallel::Split split = {};
};

// Weights and buffers after some steps.
StateDict train(const Training& run) {
  StateDict out;
  Team::create({.replicas = run.replicas, .devices = run.devices, .seed = 4, .slices = run.slices, .split = run.split})
      .run([&](Replica& me) {
        auto made = make(run.model, small(run.model, run.dropout));
        made->to(run.dtype);
        norm::convert_sync_batchnorm(*made, run.norms);
        const auto net = me.share(made, {.memory_format = run.format});
        auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05});
        for (int64_t step = 0; step < run.steps; ++step) {
          const auto key = RandomKey{9}.fold(static_cast<uint64_t>(step));
          const auto inputs = normal_(at::empty({run.examples, 2, 16, 16}, run.dtype), key);
          const auto targets = at::arange(run.examples).remainder(5);
          const auto x = me.share_of(inputs), y = me.share_of(targets);
          // Every replica must reach the synchronised norms, one without examples too: its loss is a sum over nothing.
          const auto logits = net->forward(x);
          const auto loss = x.size(0) > 0 ? torch::nn::functional::cross_entropy(logits, y) : logits.sum();
          me.step(loss, optimizer, static_cast<double>(x.size(0)));
        }
        if (me.number() == 0)
          for (const auto& [name, tensor] : state_dict(*net)) out[name] = tensor.clone().contiguous();
      });
  return out;
}

class Placement : public testing::TestWithParam<std::string> {};

TEST_P(Placement, FourReplicasComputeWhatOneDoes) {
  for (const int64_t examples : {12, 3}) {  // each has some; one has none
    Training run{.model = GetParam(), .dtype = at::kDouble, .examples = examples};
    const auto expected = train(run);
    run.replicas = 4;
    run.devices = "cpu:2";
    const auto got = train(run);
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, tensor] : expected)
      EXPECT_TRUE(at::allclose(got.at(name), tensor, 1e-8, 1e-10))
          << name << " with " << examples << " examples: " << (got.at(name) - tensor).abs().max().item<double>();
  }
}

TEST_P(Placement, ThreadsDoNotChangeABit) {
  for (const auto format : {parallel::MemoryFormat::contiguous, parallel::MemoryFormat::channels_last}) {
    Training run{.model = GetParam(), .replicas = 8, .examples = 21, .steps = 3, .dropout = true, .format = format};
    const auto expected = train(run);
    for (const char* devices : {"cpu:2", "cpu:8"}) {
      run.devices = devices;
      const auto got = train(run);
      ASSERT_EQ(got.size(), expected.size());
      for (const auto& [name, tensor] : expected)
        EXPECT_TRUE(at::equal(got.at(name), tensor)) << name << " on " << devices;
    }
  }
}

TEST_P(Placement, PartsOfTheNetworkOnDevicesOfTheirOwnDoNotEither) {
  for (const auto norms : {norm::BatchNormMode::ghost, norm::BatchNormMode::synchronised}) {
    Training run{.model = GetParam(), .replicas = 8, .examples = 21, .steps = 3, .dropout = true, .norms = norms};
    const auto expected = train(run);
    for (const auto& [devices, parts] : {std::pair("cpu:2", 2), {"cpu:4", 2}, {"cpu:3", 3}}) {
      run.devices = devices;
      run.split = {.parts = parts};
      const auto got = train(run);
      ASSERT_EQ(got.size(), expected.size());
      for (const auto& [name, tensor] : expected)
        EXPECT_TRUE(at::equal(got.at(name), tensor)) << name << " on " << devices << " in " << parts << " parts";
    }
  }
}

TEST_P(Placement, DevicesThatShareSlicesDoNotEither) {
  Training run{.model = GetParam(), .replicas = 4, .examples = 11, .steps = 2, .dropout = true, .slices = 4};
  run.norms = norm::BatchNormMode::ghost;
  const auto expected = train(run);
  for (const auto& [devices, split] : {std::pair<const char*, parallel::Split>{"cpu:2", {.sharers = 2}},
                                       {"cpu:4", {.sharers = 4}},
                                       {"cpu:4", {.parts = 2, .sharers = 2}}}) {
    run.devices = devices;
    run.split = split;
    const auto got = train(run);
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, tensor] : expected)
      EXPECT_TRUE(at::equal(got.at(name), tensor)) << name << " on " << devices << " as " << to_string(split);
  }
}

TEST_P(Placement, SlicesChangeNoMoreThanRounding) {
  Training run{.model = GetParam(), .replicas = 2, .dtype = at::kDouble};
  const auto expected = train(run);
  run.slices = 3;
  const auto got = train(run);
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(at::allclose(got.at(name), tensor, 1e-8, 1e-10))
        << name << ": " << (got.at(name) - tensor).abs().max().item<double>();
}

INSTANTIATE_TEST_SUITE_P(Of, Placement, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep::models
