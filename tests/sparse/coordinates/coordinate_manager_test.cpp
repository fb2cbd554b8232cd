// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/coordinate_manager.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/sparse/sparse_tensor.h"
#include "support/clouds.h"

namespace lockstep::sparse {
namespace {

using test::random_cloud;
using test::to_tensor;

SparseTensor make_tensor(int64_t points, int64_t axes, int64_t channels, uint32_t seed) {
  at::manual_seed(seed);
  return {at::randn({points, channels}, at::kDouble), random_cloud(points, axes, -3, 3, 2, seed)};
}

TEST(CoordinateManager, FreesItsMapsWithTheLastTensor) {
  std::weak_ptr<CoordinateManager> manager;
  std::weak_ptr<const CoordinateMap> map;
  {
    const SparseTensor x = make_tensor(20, 2, 1, 1);
    manager = x.manager();
    map = x.manager()->map(x.key());
    const SparseTensor y = x + 1;
    EXPECT_FALSE(manager.expired());
  }
  EXPECT_TRUE(manager.expired() && map.expired());
}

TEST(CoordinateManager, CachesMapsAndExplainsItself) {
  const SparseTensor x = make_tensor(50, 3, 1, 2);
  CoordinateManager& manager = *x.manager();
  const CoordinateMapKey coarse = manager.stride(x.key(), {2, 2, 2});
  EXPECT_EQ(manager.stride(x.key(), {2, 2, 2}), coarse);
  EXPECT_EQ(coarse.tensor_stride, (AxisValues{2, 2, 2}));
  const auto region = KernelRegion::hypercube({2, 2, 2}, {1, 1, 1});
  const KernelMapPtr map = manager.kernel_map(x.key(), coarse, region);
  EXPECT_EQ(manager.kernel_map(x.key(), coarse, region).get(), map.get());
  EXPECT_EQ(manager.kernel_map(coarse, x.key(), region, true)->pairs(3).in, map->pairs(3).out);
  EXPECT_EQ(manager.statistics().kernel_maps, 1);
  EXPECT_EQ(manager.statistics().hits, 2);
  EXPECT_THAT(manager.to_string(),
              testing::AllOf(testing::HasSubstr("stride [2, 2, 2]"), testing::HasSubstr("hypercube")));
  try {
    manager.map({{7, 7, 7}, "x"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("expected one of: stride [1, 1, 1]"));
  }
  EXPECT_THROW(manager.out_key(x.key(), {region, {2, 2, 2}, true}), Error);  // 2 does not divide 1
  EXPECT_EQ(manager.out_key(coarse, {region, {2, 2, 2}, true}), x.key());
  const CoordinateMapKey generated = manager.out_key(coarse, {region, {2, 2, 2}, true, true});
  EXPECT_EQ(manager.size(generated), 8 * manager.size(coarse));
}

TEST(CoordinateManager, TransposedLayersOfOneTensorMeetAtTheSameFinerCoordinates) {
  const auto two = KernelRegion::hypercube({2, 2}, {1, 1}), three = KernelRegion::hypercube({3, 3}, {1, 1});
  const SparseTensor x = make_tensor(50, 2, 1, 2);
  CoordinateManager& manager = *x.manager();
  const CoordinateMapKey coarse = manager.stride(x.key(), {2, 2});
  const CoordinateMapKey pruned = manager.prune(coarse, at::arange(manager.size(coarse)).ge(3));
  EXPECT_EQ(manager.out_key(pruned, {two, {2, 2}, true}), x.key());
  // Where there are no finer coordinates yet, the first layer makes them.
  const SparseTensor seed(at::zeros({1, 1}), to_tensor({{0, 4, 4}}, 3), {4, 4});
  const CoordinateMapKey made = seed.manager()->out_key(seed.key(), {two, {2, 2}, true, true});
  EXPECT_EQ(made, (CoordinateMapKey{{2, 2}, ""}));
  EXPECT_EQ(seed.manager()->out_key(seed.key(), {three, {2, 2}, true}), made);
  EXPECT_NE(seed.manager()->out_key(seed.key(), {three, {2, 2}, true, true}), made);
}

TEST(CoordinateManager, ATransposedLayerReturnsToTheMapThatItsInputWasStridedFrom) {
  const auto two = KernelRegion::hypercube({2}, {1});
  const auto up = [&](const SparseTensor& x, const CoordinateMapKey& key) {
    return x.manager()->out_key(key, {two, {2}, true});
  };
  {  // whose id was taken by a union on the coarse side
    const SparseTensor a(at::ones({2, 1}), to_tensor({{0, 0}, {0, 2}}, 2));
    const SparseTensor b(at::ones({2, 1}), to_tensor({{0, 5}, {0, 8}}, 2), {}, Quantization::first, a.manager());
    a.manager()->unite({a.manager()->stride(a.key(), {2}), a.manager()->stride(b.key(), {2})});
    const CoordinateMapKey sum = a.manager()->unite({a.key(), b.key()});
    EXPECT_EQ(up(a, a.manager()->stride(sum, {2})), sum);
  }
  {  // or by a tensor that somebody made there
    const SparseTensor a(at::ones({2, 1}), to_tensor({{0, 0}, {0, 2}}, 2));
    a.manager()->stride(a.key(), {2});
    const SparseTensor given(at::ones({1, 1}), to_tensor({{0, 6}}, 2), {2}, Quantization::first, a.manager());
    const SparseTensor b(at::ones({2, 1}), to_tensor({{0, 5}, {0, 8}}, 2), {}, Quantization::first, a.manager());
    EXPECT_EQ(up(a, a.manager()->stride(b.key(), {2})), b.key());
  }
  {  // and what was pruned to the whole finer map, not to another pruned one
    const SparseTensor x = make_tensor(50, 1, 1, 2);
    CoordinateManager& manager = *x.manager();
    const CoordinateMapKey coarse = manager.stride(x.key(), {2});
    manager.prune(x.key(), at::arange(x.size()).ge(2));
    EXPECT_EQ(up(x, manager.prune(coarse, at::arange(manager.size(coarse)).ge(1))), x.key());
  }
}

/// Two streams that are joined on each level: what comes up from the lower one lands on the upper one.
TEST(CoordinateManager, UnionsOfTheSameStreamsBelongTogether) {
  const SparseTensor a(at::ones({2, 1}), to_tensor({{0, 0}, {0, 2}}, 2));
  const SparseTensor b(at::ones({2, 1}), to_tensor({{0, 5}, {0, 8}}, 2), {}, Quantization::first, a.manager());
  CoordinateManager& manager = *a.manager();
  const CoordinateMapKey fine = manager.unite({a.key(), b.key()});
  const CoordinateMapKey coarse = manager.unite({manager.stride(a.key(), {2}), manager.stride(b.key(), {2})});
  EXPECT_EQ(manager.out_key(coarse, {KernelRegion::hypercube({2}, {1}), {2}, true}), fine);
}

TEST(CoordinateManager, LabelsAreTheUsers) {
  const at::Tensor c = to_tensor({{0, 0}, {0, 2}}, 2);
  CoordinateManager manager(1);
  const CoordinateMapKey named = manager.insert(c, {1}, "street").key, again = manager.insert(c, {1}, "street").key;
  EXPECT_EQ(named, (CoordinateMapKey{{1}, "street"}));
  EXPECT_EQ(again.label, "street");
  EXPECT_NE(again.number, 0);
  EXPECT_EQ(manager.stride(named, {2}), (CoordinateMapKey{{2}, "street"}));
  EXPECT_EQ(manager.stride(again, {2}).label, "street");
  const CoordinateMapKey pruned = manager.prune(named, at::arange(2).eq(0));
  EXPECT_EQ(pruned.label, "street");
  EXPECT_THAT(pruned.to_string(), testing::HasSubstr("label 'street' number"));
}

TEST(CoordinateManager, AMapThatIsSharedIsAddedOnce) {
  const SparseTensor x = make_tensor(20, 2, 1, 1), y = make_tensor(20, 2, 1, 2);
  const CoordinateMapKey pruned = x.manager()->prune(x.key(), at::arange(x.size()).ge(2));
  const CoordinateMapKey here = y.manager()->share(*x.manager(), pruned);
  EXPECT_EQ(y.manager()->map(here), x.manager()->map(pruned));
  EXPECT_EQ(y.manager()->share(*x.manager(), pruned), here);
  EXPECT_EQ(x.manager()->share(*x.manager(), pruned), pruned);
  EXPECT_NE(y.manager()->prune(y.key(), at::arange(y.size()).ge(2)).number, here.number);
}

TEST(CoordinateManager, WaysToOneStrideMeet) {
  const SparseTensor x = make_tensor(50, 2, 1, 2);
  CoordinateManager& manager = *x.manager();
  const CoordinateMapKey twice = manager.stride(manager.stride(x.key(), {2, 2}), {2, 2});
  EXPECT_EQ(manager.stride(x.key(), {4, 4}), twice);
}

TEST(CoordinateManager, TakesMapsOffTheirGrid) {
  const CoordinateMapPtr map = CoordinateMap::insert(to_tensor({{0, 1, 4}, {0, 4, 4}}, 3)).map;
  CoordinateManager manager(2);
  const CoordinateMapKey key = manager.insert(map, {2, 2});
  EXPECT_EQ(manager.size(manager.stride(key, {2, 2})), 2);
  const auto region = KernelRegion::hypercube({2, 2}, {1, 1});
  EXPECT_EQ(manager.size(manager.out_key(key, {region, {2, 2}, true, true})), 8);
}

TEST(CoordinateManager, IsRestoredFromItsSnapshotWithItsKeys) {
  const SparseTensor x = make_tensor(50, 3, 1, 2);
  CoordinateManager& manager = *x.manager();
  manager.set_batch_size(5);
  const CoordinateMapKey coarse = manager.stride(x.key(), {2, 2, 2});
  CoordinateManager copy(3);
  copy.restore(manager.snapshot());
  EXPECT_EQ(copy.keys(), manager.keys());
  EXPECT_EQ(copy.batch_size(), 5);
  EXPECT_EQ(copy.map(coarse), manager.map(coarse));  // maps never change: they are shared
  EXPECT_EQ(copy.stride(x.key(), {2, 2, 2}), coarse);
  EXPECT_EQ(copy.keys(), manager.keys());
  EXPECT_THROW(copy.restore(manager.snapshot()), Error);                  // not empty
  EXPECT_THROW(CoordinateManager(2).restore(manager.snapshot()), Error);  // other axes
  CoordinateManager::Snapshot broken = manager.snapshot();
  broken.maps.pop_back();
  EXPECT_THROW(CoordinateManager(3).restore(broken), Error);
}

}  // namespace
}  // namespace lockstep::sparse
