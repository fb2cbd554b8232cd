// SPDX-License-Identifier: Apache-2.0
// Sparse tensors and networks in the hands of the parallel layer: shares of batch entries, replicas, synchronised batch
// norms, and the same bits in every placement.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/peers.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "lockstep/parallel/functional.h"
#include "lockstep/parallel/replica.h"
#include "lockstep/parallel/team.h"
#include "lockstep/sparse/nn/blocks.h"
#include "lockstep/sparse/nn/pointwise.h"
#include "lockstep/sparse/nn/pooling.h"
#include "lockstep/sparse/tensor_field.h"
#include "support/clouds.h"
#include "support/devices.h"

namespace lockstep::sparse {
namespace {

using lockstep::test::cpus;

/// Batch entries 0 to 6; entry 2 and the last one have no points.
SparseTensor make(int64_t channels, at::ScalarType type = at::kDouble) {
  std::vector<test::Point> points;
  for (const test::Point& point :
       test::to_points(CoordinateMap::insert(test::random_cloud(200, 3, -4, 4, 6, 7)).map->coordinates()))
    if (point[0] != 2) points.push_back(point);
  auto manager = std::make_shared<CoordinateManager>(3);
  manager->set_batch_size(7);
  at::manual_seed(5);
  return {at::randn({static_cast<int64_t>(points.size()), channels}, type),
          test::to_tensor(points, 4),
          {},
          Quantization::none,
          std::move(manager)};
}

/// The same points with the same features, in whatever order.
void expect_same_points(const SparseTensor& a, const SparseTensor& b, double tolerance = 0) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.batch_size(), b.batch_size());
  const auto rows = test::rows_of(b.coordinates());
  const auto points = test::to_points(a.coordinates());
  for (size_t i = 0; i < points.size(); ++i) {
    const auto found = rows.find(points[i]);
    ASSERT_NE(found, rows.end());
    EXPECT_TRUE(at::allclose(a.features()[static_cast<int64_t>(i)], b.features()[found->second], tolerance, tolerance));
  }
}

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  explicit NetImpl(int64_t channels) : channels(channels) { NetImpl::reset(); }
  void reset() override {
    first = register_module("first", nn::Convolution(nn::ConvolutionOptions{channels, 8, {}}));
    norm = register_module("norm", nn::BatchNorm(8));
    relu = register_module("relu", nn::ReLU());
    down = register_module("down", nn::BasicBlock(nn::BlockOptions{.in_channels = 8, .planes = 12, .stride = 2}));
    up = register_module("up",
                         nn::ConvolutionTranspose(nn::ConvolutionOptions{12, 8, {.kernel_size = {2}, .stride = {2}}}));
    last = register_module("last", nn::Convolution(nn::ConvolutionOptions{16, 5, {.kernel_size = {1}}, true}));
  }
  SparseTensor forward(const SparseTensor& x) {
    const SparseTensor skip = relu(norm(first(x)));
    return last(cat({skip, up(down(skip))}));
  }
  int64_t channels;
  nn::Convolution first{nullptr}, last{nullptr};
  nn::ConvolutionTranspose up{nullptr};
  nn::BatchNorm norm{nullptr};
  nn::ReLU relu{nullptr};
  nn::BasicBlock down{nullptr};
};
TORCH_MODULE(Net);

TEST(Scatter, CutsByBatchEntriesAndGatherJoinsThem) {
  const SparseTensor x = make(3);
  for (const int count : {1, 2, 3, 7, 10}) {
    const auto shares = parallel::scatter(x, cpus(count));
    int64_t entries = 0, points = 0;
    for (const SparseTensor& share : shares) {
      EXPECT_LE(shares.back().batch_size(), share.batch_size());
      EXPECT_NE(share.manager(), x.manager());
      for (int64_t b = 0; b < share.batch_size(); ++b)
        EXPECT_TRUE(at::equal(share.features_at(b), x.features_at(entries + b)));
      entries += share.batch_size();
      points += share.size();
    }
    EXPECT_EQ(entries, 7);
    EXPECT_EQ(points, x.size());
    expect_same_points(parallel::gather(shares, {}), x);
  }
  EXPECT_THROW(parallel::scatter(x, cpus(2), 1), Error);
}

TEST(Scatter, TakesNestedInputsLabelsAndFields) {
  const SparseTensor x = make(3);
  const auto nested = parallel::scatter(std::make_tuple(x, at::arange(7)), cpus(3));
  for (const auto& [share, numbers] : nested) EXPECT_EQ(share.batch_size(), numbers.size(0));
  const auto labels = scatter_rows(x.coordinates().select(1, 0), x, cpus(3));
  const auto shares = parallel::scatter(x, cpus(3));
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(labels[r].size(0), shares[r].size());
  EXPECT_THROW(scatter_rows(at::zeros({4}), x, cpus(3)), Error);

  const TensorField field(x.features(), x.coordinates().to(at::kDouble) + 0, x.manager());
  const auto parts = parallel::scatter(field, cpus(3));
  const TensorField joined = parallel::gather(parts, {});
  expect_same_points(joined.sparse(), field.sparse());
}

TEST(Scatter, JoinsTensorsOfTheOriginAndRefusesWhatDiffers) {
  const auto shares = parallel::scatter(make(3), cpus(3));
  std::vector<SparseTensor> pooled;
  for (const SparseTensor& share : shares) pooled.push_back(global_pool(share, Pooling::sum));
  expect_same_points(parallel::gather(pooled, {}), global_pool(make(3), Pooling::sum), 1e-12);
  EXPECT_THROW(parallel::gather(std::vector{shares[0], pooled[1]}, {}), Error);
  EXPECT_THROW(
      parallel::gather(std::vector{shares[0], shares[1].with_features(shares[1].features().narrow(1, 0, 2))}, {}),
      Error);
}

TEST(Scatter, IsDifferentiable) {
  const SparseTensor x = make(3);
  const at::Tensor leaf = x.features().clone().requires_grad_(true);
  const auto shares = parallel::scatter(x.with_features(leaf), cpus(3));
  const SparseTensor joined = parallel::gather(shares, {});
  (joined.features() * joined.coordinates().select(1, 1).unsqueeze(1)).sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), x.coordinates().select(1, 1).unsqueeze(1).to(at::kDouble).expand({-1, 3})));
}

/// Loss and gradients of a network on a whole batch.
struct Whole {
  SparseTensor output;
  std::map<std::string, at::Tensor> gradients, buffers;
};

Whole run_whole(Net net, const SparseTensor& x) {
  Whole whole{net(x), {}, {}};
  whole.output.features().pow(2).sum().backward();
  for (const auto& item : net->named_parameters()) whole.gradients[item.key()] = item.value().grad().clone();
  for (const auto& item : net->named_buffers()) whole.buffers[item.key()] = item.value().clone();
  net->zero_grad();
  return whole;
}

TEST(Replicas, WithSynchronisedBatchNormsAreOneNetworkOnTheWholeBatch) {
  const SparseTensor x = make(3);
  at::manual_seed(1);
  Net net(3);
  net->to(at::kDouble);
  const Net alone(std::dynamic_pointer_cast<NetImpl>(net->clone()));
  const Whole whole = run_whole(alone, x);
  EXPECT_EQ(norm::convert_sync_batchnorm(net), 4);
  const auto devices = cpus(3);
  auto replicas = parallel::replicate(net, devices);
  const SparseTensor output =
      parallel::gather(parallel::parallel_apply(replicas, parallel::scatter(x, devices)), devices[0]);
  expect_same_points(output, whole.output, 1e-9);
  output.features().pow(2).sum().backward();
  for (const auto& item : net->named_parameters())
    EXPECT_TRUE(at::allclose(item.value().grad(), whole.gradients.at(item.key()), 1e-7, 1e-9)) << item.key();
  for (const auto& item : net->named_buffers())
    EXPECT_TRUE(at::allclose(item.value(), whole.buffers.at(item.key()), 1e-9, 1e-12)) << item.key();
}

/// One of two replicas with the same examples, that notes in which order it is asked for what.
class NotingPeers : public Peers {
 public:
  explicit NotingPeers(std::vector<std::string>& notes) : notes_(notes) {}
  int64_t replica() const override { return 0; }
  int64_t replicas() const override { return 2; }
  at::Tensor all_gather(const at::Tensor& mine) override { return at::stack({mine, mine}); }
  Gathered begin_all_gather(const at::Tensor& mine) override {
    notes_.emplace_back("sums leave");
    return [this, mine] {
      notes_.emplace_back("sums are needed");
      return all_gather(mine);
    };
  }

 private:
  std::vector<std::string>& notes_;
};

/// x * W of a 3 x 3 x 3 kernel whose gradient notes `name` when it is there.
SparseTensor noted_convolution(const SparseTensor& x, std::vector<std::string>& notes, const std::string& name) {
  const at::Tensor kernel = at::randn({27, 2, 2}, at::kDouble).requires_grad_();
  kernel.register_hook([&notes, name](const at::Tensor&) { notes.push_back(name); });
  LayerGeometry layer;
  layer.region = KernelRegion::hypercube({3, 3, 3}, {1, 1, 1});
  layer.stride = {1, 1, 1};
  return convolution(x, kernel, {}, layer);
}

TEST(Replicas, ComputeWeightGradientsWhileTheSumsOfABatchNormTravel) {
  std::vector<std::string> notes;
  NotingPeers peers(notes);
  SparseTensor y = make(2);
  for (int i = 0; i < 3; ++i) {
    y = noted_convolution(y, notes, "gradient of kernel " + std::to_string(i));
    if (i == 2) break;
    const at::Tensor normalised =
        norm::sync_batch_norm(y.features(), {}, {}, {}, {}, 0.1, 1e-5, norm::BatchNormMode::synchronised, &peers);
    y = y.with_features(normalised.relu() + 1);
  }
  notes.clear();
  y.features().square().sum().backward();
  EXPECT_EQ(notes, (std::vector<std::string>{"sums leave", "gradient of kernel 2", "sums are needed", "sums leave",
                                             "gradient of kernel 1", "sums are needed", "gradient of kernel 0"}));
}

TEST(Convolutions, WithoutBatchNormsKeepNoGradientsForLater) {
  std::vector<std::string> notes;
  SparseTensor y = make(2);
  for (int i = 0; i < 3; ++i) {
    y = noted_convolution(y, notes, "kernel " + std::to_string(i));
    y.features().register_hook([&notes, i](const at::Tensor&) { notes.push_back("output " + std::to_string(i)); });
  }
  y.features().square().sum().backward();
  EXPECT_EQ(notes, (std::vector<std::string>{"output 2", "kernel 2", "output 1", "kernel 1", "output 0", "kernel 0"}));
}

TEST(Replicas, OfANetworkThatIsNotConvertedHaveStatisticsOfTheirOwn) {
  const SparseTensor x = make(3);
  at::manual_seed(1);
  Net net(3);
  net->to(at::kDouble);
  const SparseTensor whole = net(x);
  const auto outputs = parallel::parallel_apply(parallel::replicate(net, cpus(2)), parallel::scatter(x, cpus(2)));
  EXPECT_FALSE(at::allclose(parallel::gather(outputs, {}).features().sum(), whole.features().sum()));
}

using State = std::map<std::string, at::Tensor>;

/// Three steps of a team on one batch: what replica 0 holds then.
State train(int64_t replicas, const std::string& devices, norm::BatchNormMode mode, bool shares_backward = false) {
  State state;
  const auto team =
      parallel::Team::create({.replicas = replicas, .devices = devices, .seed = 3, .shares_backward = shares_backward});
  team.run([&](parallel::Replica& me) {
    const SparseTensor batch = make(3, at::kFloat);
    const SparseTensor x = parallel::scatter(batch, cpus(static_cast<int>(replicas)))[static_cast<size_t>(me.number())];
    Net net(3);
    norm::convert_sync_batchnorm(net, mode);
    net = me.share(net);
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9});
    for (int step = 0; step < 3; ++step) {
      const at::Tensor logits = net(x).features();
      const at::Tensor target = x.coordinates().select(1, 1).remainder(5).to(at::kLong);
      const at::Tensor loss = x.size() > 0 ? torch::nn::functional::cross_entropy(logits, target) : logits.sum();
      me.step(loss, optimizer, static_cast<double>(x.size()));
    }
    if (me.number() != 0) return;
    for (const auto& item : net->named_parameters()) state[item.key()] = item.value().detach().clone();
    for (const auto& item : net->named_buffers()) state[item.key()] = item.value().clone();
  });
  return state;
}

TEST(Team, TrainsASparseNetworkToTheSameBitsInEveryPlacement) {
  for (const norm::BatchNormMode mode : {norm::BatchNormMode::synchronised, norm::BatchNormMode::ghost}) {
    const State first = train(8, "cpu:1", mode);
    EXPECT_EQ(first.size(), 27);
    for (const char* devices : {"cpu:2", "cpu:8"})
      for (const bool shares_backward : {false, true})
        for (const auto& [name, value] : train(8, devices, mode, shares_backward))
          EXPECT_TRUE(at::equal(value, first.at(name))) << name << " on " << devices;
  }
}

TEST(Team, OfEightTrainsAsOneDoes) {
  const State one = train(1, "cpu:1", norm::BatchNormMode::synchronised);
  for (const auto& [name, value] : train(8, "cpu:2", norm::BatchNormMode::synchronised))
    EXPECT_TRUE(at::allclose(value, one.at(name), 1e-3, 1e-4)) << name;
}

}  // namespace
}  // namespace lockstep::sparse
