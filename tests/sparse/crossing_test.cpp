// SPDX-License-Identifier: Apache-2.0
// Sparse tensors and fields that go to another process come to the keys there that they would have here.
#include "lockstep/context/detail/crossing.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/context/stages.h"
#include "lockstep/numerics/random.h"
#include "lockstep/sparse/nn/convolution.h"
#include "lockstep/sparse/tensor_field.h"
#include "support/clouds.h"
#include "support/error_of.h"
#include "support/team/placements.h"

namespace lockstep::sparse {
namespace {

using lockstep::test::State;
using parallel::Replica;
namespace placed = lockstep::test;

/// Points at random places, in voxels of which some are hit twice.
TensorField cloud(int64_t points, uint64_t key) {
  const at::Tensor places = normal_(at::empty({points, 3}), RandomKey{key}) * 3;
  const at::Tensor batch = at::arange(points).ge(points / 2).to(at::kFloat).unsqueeze(1);
  return {normal_(at::empty({points, 4}), RandomKey{key}.fold(1)), at::cat({batch, places}, 1)};
}

int64_t coordinates_in(const Luggage& luggage) {
  int64_t rows = 0;
  for (const at::Tensor& tensor : luggage.tensors) rows += tensor.size(0);
  return rows;
}

TEST(Crossing, SendsCoordinatesOnceAndNotThoseOfTheInput) {
  const SparseTensor x = cloud(80, 1).sparse(), again = cloud(80, 1).sparse();
  Crossing here(0), there(1);
  lockstep_enter(x, here);
  lockstep_enter(again, there);
  EXPECT_EQ(coordinates_in(lockstep_pack(x, here, 1)), 0);
  const CoordinateMapKey key = x.manager()->stride(x.key(), {2, 2, 2});
  const SparseTensor coarse(normal_(at::empty({x.manager()->size(key), 4}), RandomKey{2}), key, x.manager());
  const Luggage first = lockstep_pack(coarse, here, 1);
  EXPECT_EQ(coordinates_in(first), coarse.size());
  const auto arrive = [&](const SparseTensor& sent, const Luggage& luggage) {
    const SparseTensor arrived = lockstep_unpack(sent.features(), luggage, there, 0, &sent);
    EXPECT_EQ(arrived.key(), sent.key());
    EXPECT_EQ(arrived.manager(), again.manager());
    EXPECT_TRUE(at::equal(arrived.coordinates(), sent.coordinates()));
    return arrived;
  };
  arrive(coarse, first);
  const Luggage second = lockstep_pack(coarse + 1, here, 1);
  EXPECT_EQ(coordinates_in(second), 0);
  const SparseTensor back = arrive(coarse + 1, second);
  EXPECT_EQ(coordinates_in(lockstep_pack(back, there, 0)), 0);
  EXPECT_EQ(coordinates_in(lockstep_pack(back, there, 2)), coarse.size());
  const SparseTensor same = arrive(x, lockstep_pack(x, here, 1));
  EXPECT_TRUE(at::equal(same.inverse_mapping(), x.inverse_mapping()));
}

TEST(Crossing, AManagerGoesOnAsItWouldHaveGoneOn) {
  const SparseTensor x = cloud(120, 3).sparse();
  Crossing here(0), there(1);
  const at::Tensor keep = at::arange(x.size()).remainder(3).ne(0);
  const SparseTensor pruned = prune(x, keep), rest = prune(x, keep.logical_not());
  const SparseTensor sum = pruned + rest;
  const auto stays = [&](const SparseTensor& given) {
    return lockstep_unpack(given.features(), lockstep_pack(given, here, 1), there, 0, &given);
  };
  const SparseTensor a = stays(pruned), b = stays(rest), c = stays(sum);
  EXPECT_NE(a.manager(), x.manager());
  EXPECT_EQ(a.manager(), c.manager());
  EXPECT_EQ((a + b).key(), c.key());  // a union that was made on the other side
  LayerGeometry up{KernelRegion::hypercube({2, 2, 2}, {1, 1, 1}), {2, 2, 2}};
  const auto finer = [&](const SparseTensor& of) {
    const CoordinateMapKey coarse = of.manager()->out_key(of.key(), up);
    LayerGeometry back = up;
    back.transposed = true;
    EXPECT_EQ(of.manager()->out_key(coarse, back), of.key());
    back.generative = true;
    return of.manager()->out_key(coarse, back);
  };
  for (const auto& [left, right] : {std::pair{a, pruned}, {c, sum}}) EXPECT_EQ(finer(left), finer(right));
  EXPECT_EQ(a.manager()->keys(), x.manager()->keys());
}

TEST(Crossing, RefusesTheGlobalManager) {
  const SparseTensor x = cloud(20, 5).sparse();
  set_global_coordinate_manager(x.manager());
  Crossing here(0);
  const std::string error = lockstep::test::error_of([&] { lockstep_enter(x, here); });
  set_global_coordinate_manager(nullptr);
  EXPECT_THAT(error, testing::HasSubstr("the global coordinate manager"));
}

/// A field goes through all parts beside a sparse tensor, and some voxels are left out on the way.
struct FieldNetImpl : torch::nn::Cloneable<FieldNetImpl>, Staged {
  FieldNetImpl() { FieldNetImpl::reset(); }
  void reset() override {
    points = register_module("points", torch::nn::Linear(4, 6));
    down = register_module("down", nn::Convolution(nn::ConvolutionOptions{6, 6, {.stride = {2}}}));
    up = register_module("up",
                         nn::ConvolutionTranspose(nn::ConvolutionOptions{6, 6, {.kernel_size = {2}, .stride = {2}}}));
    last = register_module("last", torch::nn::Linear(12, 3));
  }
  std::vector<Stage> stages() override {
    return {{"points",
             [this](Bundle& b) {
               const auto& field = b.get<TensorField>();
               const TensorField wide = field.with_features(points(field.features()).relu());
               b.put("voxels", wide.sparse());
               b.put(wide);
             }},
            {"down",
             [this](Bundle& b) {
               const auto& x = b.get<SparseTensor>("voxels");
               b.put("pruned", prune(x, at::arange(x.size()).remainder(4).ne(0)));
               b.put("coarse", down(x));
             }},
            {"up",
             [this](Bundle& b) {
               const SparseTensor y = up(b.take<SparseTensor>("coarse"));
               b.put("voxels", (y + b.take<SparseTensor>("pruned")) * b.get<SparseTensor>("voxels"));
             }},
            {"last", [this](Bundle& b) {
               const auto field = b.take<TensorField>();
               b.put(last(field.cat_slice(b.take<SparseTensor>("voxels")).features()));
             }}};
  }
  at::Tensor forward(const TensorField& x) { return fold<at::Tensor>(stages(), x); }

  torch::nn::Linear points{nullptr}, last{nullptr};
  nn::Convolution down{nullptr};
  nn::ConvolutionTranspose up{nullptr};
};
TORCH_MODULE(FieldNet);

TEST(Crossing, ANetworkOfFieldsIsTheSameInParts) {
  if (!placed::joins_ranks()) GTEST_SKIP() << "this build has no backend that joins processes";
  const auto train = [](Replica& me) {
    auto network = me.share(FieldNet());
    auto optimizer = me.optimizer(parallel::Sgd{.lr = 0.05, .momentum = 0.9});
    for (uint64_t step = 0; step < 3; ++step) {
      const TensorField x = cloud(30 + 20 * me.number(), 10 * step + static_cast<uint64_t>(me.number()));
      const at::Tensor loss = torch::nn::functional::cross_entropy(network(x), at::arange(x.size()).remainder(3));
      me.step(loss, optimizer, static_cast<double>(x.size()));
    }
    return placed::state_of(me, *network, optimizer);
  };
  const State whole = placed::run_placed({1, "cpu:1"}, {.replicas = 4, .seed = 2}, train);
  for (const int64_t parts : {2, 4})
    placed::expect_equal(placed::run_placed({static_cast<int>(parts), "cpu:1"},
                                            {.replicas = 4, .seed = 2, .split = {.parts = parts}}, train),
                         whole);
}

}  // namespace
}  // namespace lockstep::sparse
