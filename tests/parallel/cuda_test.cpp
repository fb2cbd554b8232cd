// SPDX-License-Identifier: Apache-2.0
// What a GPU alone can show of the promise: R = 8 on one GPU gives the same bits each time, on any stream, and from two
// ranks that share the GPU; sums and rules have the CPU's bits. Skips, by name, where there is none.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/detail/reduce.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/numerics/device.h"
#include "lockstep/parallel/replica.h"
#include "parallel/networks.h"
#include "support/team/placements.h"

namespace lockstep::parallel {
namespace {

using lockstep::test::Placed;
using lockstep::test::State;
using norm::BatchNormMode;

#define SKIP_WITHOUT_GPU() \
  if (cuda_devices().empty()) GTEST_SKIP() << "no CUDA device here that this build has code for"

const Placed kOneGpu{1, "cuda:0"};
const TeamOptions kRecipe{.replicas = 8, .seed = 5};

std::function<State(Replica&)> training(const std::string& name, BatchNormMode mode) {
  return [=](Replica& me) {
    const auto task = lockstep::test::make_task(name);
    const auto made = task->network();
    norm::convert_sync_batchnorm(*made, mode);
    const auto network = me.share(made);
    auto optimizer = me.optimizer(Sgd{.lr = 0.05, .momentum = 0.9});
    for (int64_t step = 0; step < 3; ++step) {
      const auto [inputs, targets] = task->batch(step);
      const auto x = me.share_of(inputs).to(me.device());
      me.step(task->loss(*network, x, me.share_of(targets).to(me.device())), optimizer, static_cast<double>(x.size(0)));
    }
    return lockstep::test::state_of(me, *network, optimizer);
  };
}

struct Case {
  const char* network;
  BatchNormMode mode;
};
class CudaTeam : public ::testing::TestWithParam<Case> {
 protected:
  std::function<State(Replica&)> body() const { return training(GetParam().network, GetParam().mode); }
};
INSTANTIATE_TEST_SUITE_P(Of, CudaTeam,
                         ::testing::Values(Case{"lenet", BatchNormMode::ghost}, Case{"resnet18", BatchNormMode::ghost},
                                           Case{"resnet18", BatchNormMode::synchronised},
                                           Case{"transformer", BatchNormMode::ghost}),
                         [](const auto& info) {
                           const bool ghost = info.param.mode == BatchNormMode::ghost;
                           return std::string(info.param.network) + (ghost ? "" : "_synchronised");
                         });

TEST_P(CudaTeam, GivesTheSameBitsEachTime) {
  SKIP_WITHOUT_GPU();
  lockstep::test::expect_equal(lockstep::test::run_placed(kOneGpu, kRecipe, body()),
                               lockstep::test::run_placed(kOneGpu, kRecipe, body()));
}

TEST_P(CudaTeam, GivesTheSameBitsOnASideStream) {
  SKIP_WITHOUT_GPU();
  const State expected = lockstep::test::run_placed(kOneGpu, kRecipe, body());
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  lockstep::test::expect_equal(lockstep::test::run_placed(kOneGpu, kRecipe, body()), expected);
}

// The ranks are threads here, which share torch's one thread for backward passes on a GPU: where these meet in it, as
// synchronised batch norms do, one would wait for the other for ever. gpu-bundle/run has real processes for them.
TEST_P(CudaTeam, GivesTheSameBitsFromTwoRanksOnOneGpu) {
  SKIP_WITHOUT_GPU();
  if (GetParam().mode == BatchNormMode::synchronised) GTEST_SKIP() << "its backward passes would meet in one thread";
  if (!lockstep::test::joins_ranks()) GTEST_SKIP() << "this build has no Gloo";
  const State expected = lockstep::test::run_placed(kOneGpu, kRecipe, body());
  lockstep::test::expect_equal(lockstep::test::run_placed({2, "cuda:0"}, kRecipe, body()), expected);
  lockstep::test::expect_equal(lockstep::test::run_placed({2, "cuda:0", {3, 5}}, kRecipe, body()), expected);
}

/// The first `count` values of each row.
at::Tensor reduced(const at::Tensor& rows, int64_t count, ReduceOp op) {
  const int64_t sources = rows.size(0);
  std::vector<const std::byte*> from;
  for (int64_t s = 0; s < sources; ++s) from.push_back(static_cast<const std::byte*>(rows[s].const_data_ptr()));
  at::Tensor out = at::empty({count}, rows.options());
  std::byte* const to = static_cast<std::byte*>(out.mutable_data_ptr());
  comm::reduce_on(rows.device(), TreeProgram::of_leaves(sources), op, rows.scalar_type(), from, {&to, 1}, count,
                  sources);
  return out.cpu();
}

TEST(CudaReduce, SumsHaveTheBitsOfTheCpu) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(1);
  // Rows that begin anywhere, and rows that begin at multiples of 16 bytes and end anywhere.
  for (const auto& [count, apart] : {std::pair<int64_t, int64_t>{1001, 1001}, {4103, 4112}})
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
      for (const int64_t sources : {1, 2, 3, 8, 63, 64, 65, 200}) {
        const at::Tensor rows = at::randn({sources, apart}).to(type), on_gpu = rows.to(at::kCUDA);
        for (const auto op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max})
          EXPECT_TRUE(at::equal(reduced(on_gpu, count, op), reduced(rows, count, op)))
              << sources << " sources, " << c10::toString(type);
      }
}

// Of a loss whose gradients are the same numbers on both. Rules that go by norms add these up in an order of each
// device's own.
TEST(CudaRules, HaveTheBitsOfTheCpu) {
  SKIP_WITHOUT_GPU();
  const auto trained = [](const char* device, const Rule& rule) {
    std::vector<at::Tensor> out;
    Team::create({.devices = device}).run([&](Replica& me) {
      torch::manual_seed(1);
      torch::nn::Linear made(1000, 77);
      const at::Tensor factors = at::randn({77, 1000}), more = at::randn({77});
      const auto network = me.share(made);
      auto optimizer = me.optimizer(rule);
      for (int step = 0; step < 3; ++step)
        me.step((network->weight * factors.to(me.device())).sum() + (network->bias * more.to(me.device())).sum(),
                optimizer);
      for (const auto& parameter : network->parameters()) out.push_back(parameter.detach().cpu());
    });
    return out;
  };
  for (const Rule& rule : {Rule(Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-2, .nesterov = true}),
                           Rule(Adam{.weight_decay = 1e-2, .amsgrad = true}), Rule(AdamW{}),
                           Rule(RmsProp{.momentum = 0.9, .centered = true}), Rule(Adagrad{})}) {
    const auto expected = trained("cpu:1", rule), got = trained("cuda:0", rule);
    for (size_t p = 0; p < got.size(); ++p) EXPECT_TRUE(at::equal(got[p], expected[p])) << name_of(rule) << ", " << p;
  }
}

}  // namespace
}  // namespace lockstep::parallel
