// SPDX-License-Identifier: Apache-2.0
// Layers and their gradients through the dispatcher, on the CUDA twins against the CPU's kernels.
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <functional>
#include <set>

#include "lockstep/sparse/convolution.h"
#include "lockstep/sparse/detail/row_products.h"
#include "lockstep/sparse/operations.h"
#include "sparse/cuda/twins.h"
#include "sparse/registration.h"

namespace lockstep::sparse {
namespace {

using test::expect_close;
using test::make_map;
using test::on_twin;
using test::random_cloud;
using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

/// While it lives, the dispatcher takes the twins. On a GPU it does so by itself; without one they take the place of
/// the CPU's kernels.
class UseTwins {
#ifdef LOCKSTEP_WITHOUT_GPU
 public:
  UseTwins() : library_(torch::Library::IMPL, "lockstep_sparse", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    cuda::register_operations(library_);
  }

 private:
  torch::Library library_;
#else
 public:
  UseTwins() {}
#endif
};

/// f of the inputs, its gradients, and those of the gradients' squares where `twice`.
Tensors results(const Function& f, const Tensors& values, bool twice) {
  Tensors inputs;
  for (const at::Tensor& value : values) inputs.push_back(value.detach().clone().requires_grad_(true));
  const at::Tensor y = f(inputs);
  const at::Tensor direction = at::arange(y.numel(), at::kDouble).sin().reshape(y.sizes()).to(y.options());
  Tensors all = {y.detach()}, first = torch::autograd::grad({(y * direction).sum()}, inputs, {}, true, twice);
  for (const at::Tensor& gradient : first) all.push_back(gradient.detach());
  if (!twice) return all;
  at::Tensor squares = at::zeros({}, y.options());
  for (const at::Tensor& gradient : first) squares = squares + (gradient * gradient).sum();
  for (const at::Tensor& gradient : torch::autograd::grad({squares}, inputs, {}, false, false, true))
    if (gradient.defined()) all.push_back(gradient);
  return all;
}

void expect_same_results(const Function& f, const Tensors& values, bool twice, double tolerance = 1e-10) {
  const Tensors expected = results(f, values, twice);
  const UseTwins twins;
  Tensors moved;
  for (const at::Tensor& value : values) moved.push_back(on_twin(value));
  const Tensors got = results(f, moved, twice), again = results(f, moved, twice);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    expect_close(got[i], expected[i], tolerance);
    EXPECT_TRUE(test::same_bits(got[i], again[i])) << "result " << i;
  }
}

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble);
}

TEST(TWIN_SUITE(CudaLayers), EveryOperationOfTheCpuIsThereOnCuda) {
  std::set<std::string> missing;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("lockstep_sparse::", 0) != 0) continue;
    const auto handle = dispatcher.findOp(name);
    if (handle->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        !handle->hasKernelForDispatchKey(c10::DispatchKey::CUDA))
      missing.insert(name.name);
  }
  EXPECT_EQ(missing, std::set<std::string>{});
}

TEST(TWIN_SUITE(CudaLayers), ConvolutionsHaveFirstAndSecondGradients) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(1);
  for (const int64_t stride : {1, 2})
    for (const int64_t groups : {1, 2}) {
      const KernelMapPtr map = make_map(120, 3, 3, stride);
      expect_same_results([&](const Tensors& in) { return convolve(in[0], in[1], map, groups); },
                          {random({map->in_size(), 6}), random({27, 6 / groups, 4})}, true);
      expect_same_results([&](const Tensors& in) { return convolve(in[0], in[1], map->transposed(), groups); },
                          {random({map->out_size(), 6}), random({27, 6 / groups, 4})}, true);
    }
  const KernelMapPtr map = make_map(120, 2, 3, 2);
  expect_same_results([&](const Tensors& in) { return convolve_channelwise(in[0], in[1], map); },
                      {random({map->in_size(), 5}), random({9, 5})}, true);
  expect_same_results([&](const Tensors& in) { return linear(in[0], in[1], in[2]); },
                      {random({70, 5}), random({5, 3}), random({3})}, true);
}

TEST(TWIN_SUITE(CudaLayers), RowsHaveGradients) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(2);
  const RowMapPtr map = make_map(300, 2, 3, 2)->row_map();
  const at::Tensor x = random({map->in_size(), 3});
  expect_same_results([&](const Tensors& in) { return sum_rows(in[0], map); }, {x}, false);
  expect_same_results([&](const Tensors& in) { return mean_rows(in[0], map); }, {x}, false);
  expect_same_results([&](const Tensors& in) { return max_rows(in[0], map); }, {x}, false);
  expect_same_results([&](const Tensors& in) { return weigh_rows(in[0], map, in[1]); },
                      {x, random({map->entry_count()})}, true);
  expect_same_results(
      [&](const Tensors& in) {
        return take_rows(in[0], at::tensor({2, 0, 2}, at::kLong));
      },
      {x}, false);
}

TEST(TWIN_SUITE(CudaLayers), BatchNormHasGradients) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(3);
  expect_same_results(
      [](const Tensors& in) { return batch_norm(in[0], in[1], in[2], {}, {}, /*training=*/true, 0.1, 1e-5); },
      {random({600, 4}) + 3, random({4}), random({4})}, false);
}

/// A small U of layers on given coordinates, with a pooling, a global pooling and a broadcast.
at::Tensor network(const at::Tensor& coordinates, const Tensors& in) {
  const SparseTensor x(in[0], coordinates);
  const LayerGeometry same{KernelRegion::hypercube({3, 3, 3}, {1, 1, 1}), {1, 1, 1}};
  const LayerGeometry down{KernelRegion::hypercube({2, 2, 2}, {1, 1, 1}), {2, 2, 2}};
  LayerGeometry up = down;
  up.transposed = true;
  const SparseTensor fine = convolution(x, in[1], {}, same);
  const SparseTensor normed =
      fine.with_features(at::relu(batch_norm(fine.features(), in[4], in[5], {}, {}, true, 0.1, 1e-5)));
  const SparseTensor coarse = convolution(normed, in[2], {}, down) + pool(normed, Pooling::max, down);
  const SparseTensor spread = broadcast_add(coarse, global_pool(coarse, Pooling::average));
  return cat({convolution(spread, in[3], {}, up), normed}).features();
}

Tensors network_inputs(int64_t points, at::ScalarType type) {
  at::manual_seed(4);
  return {random({points, 3}).to(type), random({27, 3, 8}).to(type), random({8, 8, 8}).to(type),
          random({8, 8, 8}).to(type),   random({8}).to(type),        random({8}).to(type)};
}

TEST(TWIN_SUITE(CudaLayers), ANetworkIsTheOneOfTheCpu) {
  SKIP_WITHOUT_GPU();
  const at::Tensor cloud = random_cloud(600, 3, -6, 6, 2, 3);
  expect_same_results([&](const Tensors& in) { return network(cloud, in); }, network_inputs(600, at::kDouble), false);
  expect_same_results([&](const Tensors& in) { return network(cloud, in); }, network_inputs(600, at::kFloat), false,
                      1e-3);
}

#ifndef LOCKSTEP_WITHOUT_GPU
TEST(CudaLayersOnGpu, CoordinatesMayComeFromTheGpu) {
  SKIP_WITHOUT_GPU();
  const at::Tensor cloud = random_cloud(600, 3, -6, 6, 2, 3);
  const Tensors in = network_inputs(600, at::kDouble);
  expect_same_results([&](const Tensors& inputs) { return network(cloud.to(inputs[0].device()), inputs); }, in, false);
}

TEST(CudaLayersOnGpu, TensorsGoThereAndBack) {
  SKIP_WITHOUT_GPU();
  const at::Tensor cloud = CoordinateMap::insert(random_cloud(300, 3, -4, 4, 3, 3)).map->coordinates();
  const SparseTensor x(random({cloud.size(0), 3}), cloud), y = x.to(at::Device(at::kCUDA, 0));
  EXPECT_TRUE(y.features().is_cuda());
  EXPECT_TRUE(at::equal(y.to(at::kCPU).features(), x.features()));
  for (const int64_t batch : {0, 1, 2}) expect_close(y.features_at(batch), x.features_at(batch), 0);
  const at::Tensor points = at::rand({50, 4}, at::kDouble) * at::tensor({0.0, 3.0, 3.0, 3.0}, at::kDouble);
  expect_close(y.interpolate(points), x.interpolate(points), 1e-12);
  const at::Tensor keep = at::arange(cloud.size(0)).remainder(3).eq(0);
  expect_close(prune(y, keep.cuda()).features(), prune(x, keep).features(), 0);
  expect_close(y.dense().first, x.dense().first, 0);
}

TEST(CudaLayersOnGpu, AutocastComputesInTheLowerType) {
  SKIP_WITHOUT_GPU();
  const KernelMapPtr map = make_map(200, 3, 3, 1);
  const at::Tensor x = at::randn({map->in_size(), 16}).cuda(), w = at::randn({27, 16, 16}).cuda();
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  const at::Tensor y = convolve(x, w, map);
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  at::autocast::clear_cache();
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_close(y.to(at::kFloat), convolve(x.cpu(), w.cpu(), map), 3e-2);
}
#endif

}  // namespace
}  // namespace lockstep::sparse
