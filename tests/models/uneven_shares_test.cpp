// SPDX-License-Identifier: Apache-2.0
// MinkUNet14A with synchronised batch norms on four replicas, whose shares differ much in size and of which one is
// empty, computes what it does on one device with the joined batch: logits, gradients and running statistics.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <array>
#include <map>
#include <mutex>

#include "lockstep/models/clouds/minkunet.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/parallel/functional.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "support/clouds.h"
#include "support/devices.h"

namespace lockstep::models {
namespace {

using sparse::SparseTensor;

constexpr int64_t kReplicas = 4, kClasses = 5;
constexpr double kTolerance = 1e-10;

/// Voxels of the clouds of a batch: how many, and how far they reach on each side of the origin.
struct Size {
  int64_t voxels, reach;
};
constexpr std::array<Size, 4> kSizes{{{700, 40}, {3, 2}, {150, 6}, {60, 90}}};

using Shares = std::vector<std::vector<int64_t>>;  // the clouds of each replica

struct Labelled {
  SparseTensor x;
  at::Tensor labels;
};

/// These clouds as one batch, numbered from 0. A cloud is the same in any company.
Labelled batch_of(const std::vector<int64_t>& clouds) {
  std::vector<at::Tensor> coordinates{at::empty({0, 4}, at::kInt)}, features{at::empty({0, 3}, at::kDouble)};
  for (size_t entry = 0; entry < clouds.size(); ++entry) {
    const Size size = kSizes[clouds[entry]];
    const at::Tensor points =
        sparse::CoordinateMap::insert(sparse::test::random_cloud(size.voxels, 3, -size.reach, size.reach, 1,
                                                                 static_cast<uint32_t>(clouds[entry])))
            .map->coordinates()
            .clone();
    points.select(1, 0).fill_(static_cast<int64_t>(entry));
    coordinates.push_back(points);
    const at::Tensor numbers = at::arange(3 * points.size(0), at::kDouble).view({-1, 3});
    features.push_back((numbers * 0.7 + static_cast<double>(clouds[entry])).sin());
  }
  auto manager = std::make_shared<sparse::CoordinateManager>(3);
  manager->set_batch_size(static_cast<int64_t>(clouds.size()));
  Labelled batch;
  batch.x = SparseTensor(at::cat(features), at::cat(coordinates), {}, sparse::Quantization::none, std::move(manager));
  batch.labels = at::cat(coordinates).slice(1, 1).sum(1).remainder(kClasses);
  return batch;
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels) {
  return labels.size(0) > 0 ? at::cross_entropy_loss(logits, labels) : logits.sum();
}

MinkUNet network() {
  torch::manual_seed(11);
  MinkUNet net(MinkUNetOptions::variant("14A", 3, kClasses));
  net->to(at::kDouble);
  return net;
}

using Named = std::map<std::string, at::Tensor>;

template <class Items>
Named copies(const Items& items) {
  Named out;
  for (const auto& item : items) out[item.key()] = item.value().detach().clone();
  return out;
}

/// What a pass leaves: each cloud's logits, and the gradients and buffers of the network.
struct Pass {
  std::map<int64_t, at::Tensor> logits;
  Named gradients, buffers;
};

void keep_logits(Pass& pass, const std::vector<int64_t>& clouds, const SparseTensor& y) {
  for (size_t entry = 0; entry < clouds.size(); ++entry)
    pass.logits[clouds[entry]] = y.features_at(static_cast<int64_t>(entry)).detach();
}

const Pass& on_one_device() {
  static const Pass pass = [] {
    Pass made;
    MinkUNet net = network();
    const std::vector<int64_t> all{0, 1, 2, 3};
    const Labelled batch = batch_of(all);
    const SparseTensor y = net(batch.x);
    loss_of(y.features(), batch.labels).backward();
    keep_logits(made, all, y);
    for (const auto& item : net->named_parameters()) made.gradients[item.key()] = item.value().grad();
    made.buffers = copies(net->named_buffers());
    return made;
  }();
  return pass;
}

void expect_close(const Named& got, const Named& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, value] : expected) {
    const double scale = std::max(1.0, value.abs().max().item<double>());
    EXPECT_LE((got.at(name) - value).abs().max().item<double>(), kTolerance * scale) << name;
  }
}

void expect_same(const Pass& got) {
  const Pass& expected = on_one_device();
  ASSERT_EQ(got.logits.size(), kSizes.size());
  for (const auto& [cloud, logits] : expected.logits)
    EXPECT_TRUE(at::allclose(got.logits.at(cloud), logits, kTolerance, kTolerance)) << "cloud " << cloud;
  expect_close(got.gradients, expected.gradients);
  expect_close(got.buffers, expected.buffers);
}

class UnevenShares : public testing::TestWithParam<Shares> {};

TEST_P(UnevenShares, OfATeamAreOneBatch) {
  const MinkUNet given = network();  // a network made in a team draws its weights from the team's seed
  for (const char* devices : {"cpu:1", "cpu:4"}) {
    SCOPED_TRACE(devices);
    Pass pass;
    std::mutex mutex;
    const auto team = parallel::Team::create({.replicas = kReplicas, .devices = devices, .seed = 3});
    team.run([&](parallel::Replica& me) {
      const auto& clouds = GetParam()[me.number()];
      const Labelled share = batch_of(clouds);
      MinkUNet net(std::dynamic_pointer_cast<MinkUNetImpl>(given->clone()));
      norm::convert_sync_batchnorm(net);
      net = me.share(net);
      const Named before = copies(net->named_parameters());
      auto optimizer = me.optimizer(parallel::Sgd{.lr = 1});
      const SparseTensor y = net(share.x);
      me.step(loss_of(y.features(), share.labels), optimizer, static_cast<double>(share.x.size()));
      const std::lock_guard lock(mutex);
      keep_logits(pass, clouds, y);
      const Named buffers = copies(net->named_buffers());
      if (!pass.buffers.empty()) expect_close(buffers, pass.buffers);
      pass.buffers = buffers;
      for (const auto& item : net->named_parameters())
        pass.gradients[item.key()] = before.at(item.key()) - item.value().detach();
    });
    expect_same(pass);
  }
}

TEST_P(UnevenShares, OfOneGraphAreOneBatch) {
  const std::vector<Device> devices = test::cpus(kReplicas);
  std::vector<SparseTensor> shares;
  std::vector<at::Tensor> labels;
  for (const auto& clouds : GetParam()) {
    const Labelled share = batch_of(clouds);
    shares.push_back(share.x);
    labels.push_back(share.labels);
  }
  MinkUNet net = network();
  norm::convert_sync_batchnorm(net);
  auto replicas = parallel::replicate(net, devices);
  const auto outputs = parallel::parallel_apply(replicas, shares);
  std::vector<at::Tensor> logits;
  Pass pass;
  for (size_t r = 0; r < outputs.size(); ++r) {
    logits.push_back(outputs[r].features());
    keep_logits(pass, GetParam()[r], outputs[r]);
  }
  loss_of(at::cat(logits), at::cat(labels)).backward();
  for (const auto& item : net->named_parameters()) pass.gradients[item.key()] = item.value().grad();
  pass.buffers = copies(net->named_buffers());
  expect_same(pass);
}

INSTANTIATE_TEST_SUITE_P(Of, UnevenShares, testing::Values(Shares{{0}, {1}, {}, {2, 3}}, Shares{{}, {2}, {0, 1}, {3}}));

}  // namespace
}  // namespace lockstep::models
