// SPDX-License-Identifier: Apache-2.0
#include "lockstep/norm/sync_batch_norm.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/batchnorm.h>

#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/norm/detail/batch_norm.h"
#include "lockstep/numerics/pinned.h"
#include "norm/strided.h"
#include "support/thread_peers.h"

namespace lockstep::norm {
namespace {

using test::run_on_threads;

/// A layer of any of the three types behind one face.
template <class Impl>
struct AnyLayer {
  explicit AnyLayer(const torch::nn::BatchNormOptions& options, at::ScalarType dtype)
      : impl(std::make_shared<Impl>(options)) {
    impl->to(dtype);
    if (!options.affine()) return;
    const at::NoGradGuard no_grad;
    impl->weight.copy_(at::linspace(0.5, 2, options.num_features(), at::kDouble));
    impl->bias.copy_(at::linspace(-1, 1, options.num_features(), at::kDouble));
  }
  std::shared_ptr<Impl> impl;
};

/// What training leaves behind: outputs, the gradients of input, weight and bias, running statistics.
struct Outcome {
  at::Tensor y, dx, weight_grad, bias_grad, running_mean, running_var;

  static void expect_close(const char* what, const at::Tensor& got, const at::Tensor& expected, double tolerance) {
    ASSERT_EQ(got.defined(), expected.defined()) << what;
    if (!got.defined()) return;
    ASSERT_EQ(got.sizes(), expected.sizes()) << what;
    EXPECT_TRUE(at::allclose(got, expected, tolerance, tolerance))
        << what << " differs by " << (got - expected).abs().max().item<double>();
  }
  void expect_close_to(const Outcome& other, double tolerance) const {
    expect_close("y", y, other.y, tolerance);
    expect_close("dx", dx, other.dx, tolerance);
    expect_close("weight's gradient", weight_grad, other.weight_grad, 10 * tolerance);
    expect_close("bias's gradient", bias_grad, other.bias_grad, 10 * tolerance);
    expect_close("running_mean", running_mean, other.running_mean, tolerance);
    expect_close("running_var", running_var, other.running_var, tolerance);
  }
  bool same_bits(const Outcome& other) const {
    const auto same = [](const at::Tensor& a, const at::Tensor& b) { return !a.defined() || at::equal(a, b); };
    return same(y, other.y) && same(dx, other.dx) && same(weight_grad, other.weight_grad) &&
           same(bias_grad, other.bias_grad) && same(running_mean, other.running_mean) &&
           same(running_var, other.running_var);
  }
};

struct Case {
  torch::nn::BatchNormOptions options{3};
  at::ScalarType dtype = at::kDouble;
  std::vector<int64_t> shares{4, 3};
  std::vector<int64_t> rest{5, 2};  // sizes behind the channels
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  bool delays = false;
  int steps = 2;
};

at::Tensor input_of(const Case& given, int64_t batch, int step) {
  std::vector<int64_t> sizes{batch, given.options.num_features()};
  sizes.insert(sizes.end(), given.rest.begin(), given.rest.end());
  at::manual_seed(1 + step);
  const at::Tensor x = at::randn(sizes, at::kDouble) * 2 + 3;
  return x.to(given.dtype).contiguous(given.format);
}

template <class Impl>
Outcome train(const Case& given, Impl& layer, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& gs,
              int64_t replica) {
  Outcome outcome;
  for (size_t step = 0; step < inputs.size(); ++step) {
    if (given.delays) std::this_thread::sleep_for(std::chrono::milliseconds((replica * 7 + step * 3) % 5));
    const at::Tensor x = inputs[step].detach().requires_grad_();
    layer.zero_grad();
    outcome.y = layer.forward(x);
    outcome.y.backward(gs[step]);
    outcome.y = outcome.y.detach();
    outcome.dx = x.grad();
  }
  const auto copy = [](const at::Tensor& t) { return t.defined() ? t.detach().clone() : at::Tensor(); };
  outcome.weight_grad = layer.weight.defined() ? copy(layer.weight.grad()) : at::Tensor();
  outcome.bias_grad = layer.bias.defined() ? copy(layer.bias.grad()) : at::Tensor();
  outcome.running_mean = copy(layer.running_mean);
  outcome.running_var = copy(layer.running_var);
  return outcome;
}

int64_t batch_of(const Case& given) {
  int64_t batch = 0;
  for (int64_t share : given.shares) batch += share;
  return batch;
}

void data_of(const Case& given, std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& gs) {
  for (int step = 0; step < given.steps; ++step) {
    inputs.push_back(input_of(given, batch_of(given), step));
    gs.push_back((input_of(given, batch_of(given), 100 + step) - 3) * 0.5);
  }
}

/// One device on the joined batch.
template <class Impl>
Outcome joined(const Case& given) {
  std::vector<at::Tensor> inputs, gs;
  data_of(given, inputs, gs);
  AnyLayer<Impl> layer(given.options, given.dtype);
  return train(given, *layer.impl, inputs, gs, 0);
}

/// The shares on replicas, joined afterwards; gradients of parameters are summed, as the team does.
template <class Impl>
Outcome replicated(const Case& given, BatchNormMode mode = BatchNormMode::synchronised) {
  const auto replicas = static_cast<int64_t>(given.shares.size());
  std::vector<at::Tensor> inputs, gs;
  data_of(given, inputs, gs);
  std::vector<Outcome> outcomes(replicas);
  run_on_threads(replicas, [&](int64_t r) {
    AnyLayer<Impl> layer(given.options, given.dtype);
    EXPECT_EQ(convert_sync_batchnorm(*layer.impl, mode), 1);
    int64_t from = 0;
    for (int64_t i = 0; i < r; ++i) from += given.shares[i];
    std::vector<at::Tensor> my_inputs, my_gs;
    for (size_t step = 0; step < inputs.size(); ++step) {
      my_inputs.push_back(inputs[step].narrow(0, from, given.shares[r]));
      my_gs.push_back(gs[step].narrow(0, from, given.shares[r]));
    }
    outcomes[r] = train(given, *layer.impl, my_inputs, my_gs, r);
  });
  Outcome all = outcomes[0];
  std::vector<at::Tensor> ys, dxs;
  for (int64_t r = 0; r < replicas; ++r) {
    const Outcome& each = outcomes[r];
    ys.push_back(each.y);
    dxs.push_back(each.dx);
    if (r > 0 && all.weight_grad.defined()) {
      all.weight_grad = all.weight_grad + each.weight_grad;
      all.bias_grad = all.bias_grad + each.bias_grad;
    }
    if (all.running_mean.defined()) {
      EXPECT_TRUE(at::equal(each.running_mean, all.running_mean)) << "of replica " << r;
      EXPECT_TRUE(at::equal(each.running_var, all.running_var)) << "of replica " << r;
    }
  }
  all.y = at::cat(ys);
  all.dx = at::cat(dxs);
  return all;
}

template <class Impl = torch::nn::BatchNorm2dImpl>
void expect_equal_to_joined(const Case& given) {
  const double tolerance = given.dtype == at::kDouble ? 1e-12 : 2e-5;
  replicated<Impl>(given).expect_close_to(joined<Impl>(given), tolerance);
}

TEST(SyncBatchNorm, EqualsOneDeviceOnTheJoinedBatch) {
  const ReplicaNumerics one_thread;
  const std::vector<std::vector<int64_t>> all_shares{{6},    {3, 3},    {5, 2},    {2, 3, 1},
                                                     {0, 4}, {4, 0, 2}, {1, 1, 1}, {2, 2, 2, 1, 0, 1, 1, 0}};
  for (const auto& shares : all_shares)
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        SCOPED_TRACE(std::to_string(shares.size()) + " replicas");
        expect_equal_to_joined({.dtype = dtype, .shares = shares, .format = format});
      }
}

TEST(SyncBatchNorm, KeepsTheMemoryFormat) {
  const Case given{.format = at::MemoryFormat::ChannelsLast};
  torch::nn::BatchNorm2d layer(given.options);
  layer->to(at::kDouble);
  convert_sync_batchnorm(layer);
  const at::Tensor x = input_of(given, 4, 0).requires_grad_();
  const at::Tensor y = layer->forward(x);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  y.sum().backward();  // a gradient with strides of zero
  EXPECT_TRUE(x.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LT(x.grad().abs().max().item<double>(), 1e-12);
}

TEST(SyncBatchNorm, HasOneTwoAndThreeDimensions) {
  expect_equal_to_joined<torch::nn::BatchNorm1dImpl>({.shares = {3, 0, 4}, .rest = {}});
  expect_equal_to_joined<torch::nn::BatchNorm1dImpl>({.shares = {3, 2}, .rest = {33}});
  expect_equal_to_joined<torch::nn::BatchNorm3dImpl>({.shares = {2, 1}, .rest = {2, 3, 4}});
  expect_equal_to_joined<torch::nn::BatchNorm3dImpl>(
      {.shares = {2, 1}, .rest = {2, 3, 4}, .format = at::MemoryFormat::ChannelsLast3d});
}

TEST(SyncBatchNorm, FillsWholeLanesAndSlices) {
  expect_equal_to_joined({.options = {1}, .shares = {2, 3}, .rest = {17, 31}});
  expect_equal_to_joined<torch::nn::BatchNorm1dImpl>({.options = {300}, .shares = {700, 513}, .rest = {}});
}

TEST(SyncBatchNorm, KeepsCumulativeAverages) {
  expect_equal_to_joined({.options = torch::nn::BatchNormOptions(3).momentum(std::nullopt), .steps = 4});
}

TEST(SyncBatchNorm, DoesWithoutWeightsOrWithoutRunningStatistics) {
  expect_equal_to_joined({.options = torch::nn::BatchNormOptions(3).affine(false)});
  expect_equal_to_joined({.options = torch::nn::BatchNormOptions(3).track_running_stats(false)});
}

TEST(SyncBatchNorm, IsAccurateFarFromZero) {
  const at::Tensor x = at::randn({64, 2, 9}, at::kDouble) + 1e6;
  for (const at::Tensor& given : {x, x.transpose(1, 2).contiguous().view({-1, 2})}) {
    std::vector<int64_t> axes{0};
    if (given.dim() == 3) axes.push_back(2);
    const at::Tensor moments = strided_operations().moments(given), variance = moments[2] / moments[0];
    EXPECT_TRUE(at::allclose(variance, given.var(axes, false), 1e-9));
  }
}

TEST(SyncBatchNorm, HalfPrecisionIsComputedInFloat32) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor x = (at::randn({6, 3, 4, 4}) * 2 + 1).to(dtype), w = at::rand({3}), b = at::rand({3});
    const at::Tensor y = sync_batch_norm(x, w, b, {}, {}, 0.1, 1e-5, BatchNormMode::synchronised, nullptr);
    const at::Tensor expected = at::batch_norm(x.to(at::kFloat), w, b, {}, {}, true, 0.1, 1e-5, false).to(dtype);
    EXPECT_EQ(y.scalar_type(), dtype);
    EXPECT_LE((y - expected).abs().max().item<float>(), dtype == at::kHalf ? 4e-3 : 3e-2);
  }
}

TEST(SyncBatchNorm, GivesTheSameBitsInAnyTiming) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    Case given{.dtype = at::kFloat, .shares = {3, 1, 0, 2, 5}, .rest = {9, 7}, .format = format, .steps = 3};
    const Outcome first = replicated<torch::nn::BatchNorm2dImpl>(given);
    given.delays = true;
    for (int repeat = 0; repeat < 3; ++repeat)
      EXPECT_TRUE(replicated<torch::nn::BatchNorm2dImpl>(given).same_bits(first));
  }
}

TEST(SyncBatchNorm, GivesTheSameBitsForAnyNumberOfIntraOpThreads) {
  const at::Tensor planes = at::randn({40, 33, 12, 12}), statistic = at::rand({33}, at::kDouble);
  const int before = at::get_num_threads();
  for (const at::Tensor& x : {planes, planes.contiguous(at::MemoryFormat::ChannelsLast)}) {
    std::vector<at::Tensor> results;
    for (int threads : {1, 2, 3}) {
      at::set_num_threads(threads);
      results.push_back(at::cat(
          {strided_operations().moments(x), strided_operations().gradient_sums(x * x, x, statistic, statistic)}));
    }
    EXPECT_TRUE(at::equal(results[0], results[1]) && at::equal(results[0], results[2]));
  }
  at::set_num_threads(before);
}

TEST(SyncBatchNorm, GhostTakesItsOwnStatisticsAndKeepsTheMeanOfAll) {
  const Case given{.shares = {4, 0, 3}, .steps = 1};
  const Outcome got = replicated<torch::nn::BatchNorm2dImpl>(given, BatchNormMode::ghost);
  const at::Tensor x = input_of(given, 7, 0);
  const AnyLayer<torch::nn::BatchNorm2dImpl> layer(given.options, given.dtype);
  const at::Tensor first = layer.impl->forward(x.narrow(0, 0, 4)), last = layer.impl->forward(x.narrow(0, 4, 3));
  EXPECT_TRUE(at::allclose(got.y, at::cat({first, last}), 1e-12, 1e-12));
  const auto mean_over = [&](const std::function<at::Tensor(const at::Tensor&)>& statistic) {
    return (statistic(x.narrow(0, 0, 4)) + statistic(x.narrow(0, 4, 3))) / 2;
  };
  const std::vector<int64_t> axes{0, 2, 3};
  const at::Tensor mean = mean_over([&](const at::Tensor& share) { return share.mean(axes); });
  const at::Tensor var = mean_over([&](const at::Tensor& share) { return share.var(axes); });
  EXPECT_TRUE(at::allclose(got.running_mean, 0.1 * mean, 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(got.running_var, 0.9 + 0.1 * var, 1e-12, 1e-12));
}

TEST(SyncBatchNorm, GhostByTorchsKernelsIsTheSameLayer) {  // which is what runs on CUDA
  for (const auto dtype : {at::kDouble, at::kFloat})
    for (const bool tracked : {true, false}) {
      const double tolerance = dtype == at::kDouble ? 1e-10 : 1e-4;
      at::manual_seed(3);
      const at::Tensor x = at::randn({5, 3, 4, 2}, dtype) * 2 + 3, g = at::randn_like(x);
      const auto outcome_of = [&](bool by_torch) {
        const auto options = at::TensorOptions(dtype);
        norm::Layer layer{.weight = at::linspace(0.5, 2, 3, options).requires_grad_(),
                          .bias = at::linspace(-1, 1, 3, options).requires_grad_(),
                          .running_mean = tracked ? at::zeros({3}, options) : at::Tensor(),
                          .running_var = tracked ? at::ones({3}, options) : at::Tensor()};
        const at::Tensor input = x.detach().requires_grad_();
        const at::Tensor y = by_torch ? ghost_by_torch(input, layer, nullptr)
                                      : batch_norm(strided_operations(), input, layer, BatchNormMode::ghost);
        y.backward(g);
        return Outcome{y.detach(),        input.grad(),       layer.weight.grad(),
                       layer.bias.grad(), layer.running_mean, layer.running_var};
      };
      outcome_of(true).expect_close_to(outcome_of(false), tolerance);
    }
}

TEST(SyncBatchNorm, GhostsOfOneRowHaveAMeanAndNoVariance) {
  const at::Tensor x = at::randn({5, 2}, at::kDouble);
  const auto moved = [&](const std::vector<int64_t>& shares) {
    std::vector<at::Tensor> statistics(2 * shares.size());
    run_on_threads(static_cast<int64_t>(shares.size()), [&](int64_t r) {
      const int64_t begin = std::accumulate(shares.begin(), shares.begin() + r, int64_t{0});
      const at::Tensor mean = at::zeros({2}, at::kDouble), var = at::ones({2}, at::kDouble);
      sync_batch_norm(x.narrow(0, begin, shares[r]), {}, {}, mean, var, 0.1, 1e-5, BatchNormMode::ghost,
                      current_peers());
      statistics[2 * r] = mean;
      statistics[2 * r + 1] = var;
    });
    for (size_t i = 2; i < statistics.size(); ++i) EXPECT_TRUE(at::equal(statistics[i], statistics[i % 2])) << i;
    return std::pair(statistics[0], statistics[1]);
  };
  const at::Tensor share = x.narrow(0, 0, 4);
  const auto [mean, var] = moved({4, 1, 0});
  EXPECT_TRUE(at::allclose(mean, 0.1 * (share.mean(0) + x[4]) / 2, 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(var, 0.9 + 0.1 * share.var(0), 1e-12, 1e-12));
  const auto [lone_mean, lone_var] = moved({1, 1});
  EXPECT_TRUE(at::allclose(lone_mean, 0.1 * (x[0] + x[1]) / 2, 1e-12, 1e-12));
  EXPECT_TRUE(at::equal(lone_var, at::ones({2}, at::kDouble)));
}

TEST(SyncBatchNorm, SaysWhatIsWrongWithItsArguments) {
  const auto call = [](const at::Tensor& x, const at::Tensor& weight) {
    return sync_batch_norm(x, weight, {}, {}, {}, 0.1, 1e-5, BatchNormMode::synchronised, nullptr);
  };
  EXPECT_THROW(call(at::zeros({3}), {}), Error);
  EXPECT_THROW(call(at::zeros({3, 2}, at::kInt), {}), Error);
  EXPECT_THROW(call(at::zeros({3, 2}), at::ones({3})), Error);
  const at::Tensor x = at::randn({3, 2}).requires_grad_();
  const at::Tensor y = call(x, {});
  EXPECT_THROW(torch::autograd::grad({y.square().sum()}, {x}, {}, std::nullopt, /*create_graph=*/true), Error);
}

}  // namespace
}  // namespace lockstep::norm
