// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>

#include "lockstep/base/error.h"
#include "lockstep/sparse/detail/row_products.h"
#include "lockstep/sparse/sparse_tensor.h"
#include "sparse/feature_checks.h"
#include "sparse/ops/kernels.h"

namespace lockstep::sparse {
namespace {

void require_one_manager(const char* operation, const SparseTensor& a, const SparseTensor& b) {
  require(a.manager() == b.manager(), operation, "tensors ", a.to_string(), " and ", b.to_string(),
          " belong to different coordinate managers, expected one: make the second with the first's manager");
}

void require_one_map(const char* operation, const std::vector<SparseTensor>& tensors) {
  require(!tensors.empty(), operation, "there are no tensors, expected one at least");
  for (const SparseTensor& tensor : tensors) {
    require_one_manager(operation, tensors[0], tensor);
    require(tensor.key() == tensors[0].key(), operation, "a tensor has the coordinates '", tensor.key().to_string(),
            "', expected '", tensors[0].key().to_string(), "' as the first one has");
  }
}

at::Tensor features_on(const SparseTensor& x, const CoordinateMapKey& key) {
  return x.key() == key ? x.features() : sum_rows(x.features(), x.manager()->row_map(x.key(), key));
}

template <class Operation>
SparseTensor apply(const char* name, const SparseTensor& a, const SparseTensor& b, const Operation& operation) {
  require_one_manager(name, a, b);
  require(a.channels() == b.channels() || a.channels() == 1 || b.channels() == 1, name, "tensors have ", a.channels(),
          " and ", b.channels(), " channels, expected the same number");
  if (a.key() == b.key()) return a.with_features(operation(a.features(), b.features()));
  const CoordinateMapKey key = a.manager()->unite({a.key(), b.key()});
  return {operation(features_on(a, key), features_on(b, key)), key, a.manager()};
}

at::Tensor stacked(const char* name, const std::vector<SparseTensor>& tensors) {
  require_one_map(name, tensors);
  std::vector<at::Tensor> features;
  for (const SparseTensor& tensor : tensors) {
    require(tensor.channels() == tensors[0].channels(), name, "a tensor has ", tensor.channels(),
            " channels, expected ", tensors[0].channels(), " as the first one has");
    features.push_back(tensor.features());
  }
  return at::stack(features);
}

}  // namespace

SparseTensor operator+(const SparseTensor& a, const SparseTensor& b) {
  return apply("operator+", a, b, [](const at::Tensor& x, const at::Tensor& y) { return x + y; });
}
SparseTensor operator-(const SparseTensor& a, const SparseTensor& b) {
  return apply("operator-", a, b, [](const at::Tensor& x, const at::Tensor& y) { return x - y; });
}
SparseTensor operator*(const SparseTensor& a, const SparseTensor& b) {
  return apply("operator*", a, b, [](const at::Tensor& x, const at::Tensor& y) { return x * y; });
}
SparseTensor operator/(const SparseTensor& a, const SparseTensor& b) {
  return apply("operator/", a, b, [](const at::Tensor& x, const at::Tensor& y) { return x / y; });
}
SparseTensor operator+(const SparseTensor& a, double b) {
  return a.with_features(a.features() + b);
}
SparseTensor operator-(const SparseTensor& a, double b) {
  return a.with_features(a.features() - b);
}
SparseTensor operator*(const SparseTensor& a, double b) {
  return a.with_features(a.features() * b);
}
SparseTensor operator/(const SparseTensor& a, double b) {
  return a.with_features(a.features() / b);
}
SparseTensor operator+(double a, const SparseTensor& b) {
  return b + a;
}
SparseTensor operator-(double a, const SparseTensor& b) {
  return b.with_features(a - b.features());
}
SparseTensor operator*(double a, const SparseTensor& b) {
  return b * a;
}
SparseTensor operator/(double a, const SparseTensor& b) {
  return b.with_features(a / b.features());
}
SparseTensor operator-(const SparseTensor& a) {
  return a.with_features(-a.features());
}
SparseTensor pow(const SparseTensor& a, double exponent) {
  return a.with_features(at::pow(a.features(), exponent));
}

namespace {

/// `b` as one value for each of a's, with a gradient that is summed in a fixed order.
at::Tensor spread(const char* name, const SparseTensor& a, const at::Tensor& b) {
  require(b.defined(), name, "the tensor is undefined, expected one to go with ", a.to_string());
  check_same_kind(name, "the tensor", b, a.features());
  if (b.dim() == 2 && b.size(0) == a.size() && (b.size(1) == a.channels() || b.size(1) == 1)) return b;
  require(b.dim() <= 2 && (b.dim() < 2 || b.size(0) == 1) && (b.numel() == a.channels() || b.numel() == 1), name,
          "the tensor is ", describe(b), ", expected [", a.size(), ", ", a.channels(), "], or one value or ",
          a.channels(), ", one a channel");
  return expand_rows(b.reshape({-1}).expand({a.channels()}), a.size());
}

}  // namespace

SparseTensor operator+(const SparseTensor& a, const at::Tensor& b) {
  return a.with_features(a.features() + spread("operator+", a, b));
}
SparseTensor operator-(const SparseTensor& a, const at::Tensor& b) {
  return a.with_features(a.features() - spread("operator-", a, b));
}
SparseTensor operator*(const SparseTensor& a, const at::Tensor& b) {
  return a.with_features(a.features() * spread("operator*", a, b));
}
SparseTensor operator/(const SparseTensor& a, const at::Tensor& b) {
  return a.with_features(a.features() / spread("operator/", a, b));
}

SparseTensor cat(const std::vector<SparseTensor>& tensors) {
  require_one_map("cat", tensors);
  std::vector<at::Tensor> features;
  for (const SparseTensor& tensor : tensors) features.push_back(tensor.features());
  return tensors[0].with_features(at::cat(features, 1));
}

SparseTensor stack_sum(const std::vector<SparseTensor>& tensors) {
  at::Tensor sum = stacked("stack_sum", tensors).sum(0);
  return tensors[0].with_features(std::move(sum));
}
SparseTensor stack_mean(const std::vector<SparseTensor>& tensors) {
  at::Tensor mean = stacked("stack_mean", tensors).mean(0);
  return tensors[0].with_features(std::move(mean));
}
SparseTensor stack_var(const std::vector<SparseTensor>& tensors) {
  at::Tensor variance = stacked("stack_var", tensors).var(0, /*unbiased=*/false);
  return tensors[0].with_features(std::move(variance));
}

SparseTensor unite(const std::vector<SparseTensor>& tensors) {
  require(!tensors.empty(), "unite", "there are no tensors, expected one at least");
  std::vector<CoordinateMapKey> keys;
  for (const SparseTensor& tensor : tensors) {
    require_one_manager("unite", tensors[0], tensor);
    keys.push_back(tensor.key());
  }
  const CoordinateMapKey key = tensors[0].manager()->unite(keys);
  at::Tensor sum = features_on(tensors[0], key);
  for (size_t i = 1; i < tensors.size(); ++i) sum = sum + features_on(tensors[i], key);
  return {sum, key, tensors[0].manager()};
}

SparseTensor prune(const SparseTensor& x, const at::Tensor& keep) {
  const CoordinateMapKey key = x.manager()->prune(x.key(), keep);
  return {take_rows(x.features(), at::nonzero(keep.cpu()).squeeze(1)), key, x.manager()};
}

SparseTensor to_sparse(const at::Tensor& dense, bool remove_zeros, CoordinateManagerPtr manager) {
  require(dense.dim() >= 3 && dense.dim() <= 10 && dense.device().is_cpu(), "to_sparse", "the tensor is ",
          describe(dense), ", expected [batches, C, extents...] on cpu");
  std::vector<int64_t> order = {0}, extents = {dense.size(0)};
  for (int64_t axis = 2; axis < dense.dim(); ++axis) {
    order.push_back(axis);
    extents.push_back(dense.size(axis));
  }
  order.push_back(1);
  const at::Tensor table = dense.permute(order).reshape({-1, dense.size(1)});
  const at::Tensor mask = remove_zeros ? table.detach().ne(0).any(1) : at::ones({table.size(0)}, at::kBool);
  const at::Tensor points = at::nonzero(mask.view(extents)).to(at::kInt);
  return {take_rows(table, at::nonzero(mask).squeeze(1)), points, {}, Quantization::none, std::move(manager)};
}

}  // namespace lockstep::sparse
