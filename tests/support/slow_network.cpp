// SPDX-License-Identifier: Apache-2.0
#include "support/slow_network.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/full.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>
#include <limits>
#include <set>

namespace lockstep::models::test {
namespace {

/// The offsets of a hypercube of `volume`: the first axis fastest, an odd size centred, an even one from 0.
std::vector<Point> offsets_of(int64_t volume, int64_t axes, int64_t step) {
  const auto size = std::llround(std::pow(static_cast<double>(volume), 1.0 / static_cast<double>(axes)));
  const int64_t first = size % 2 == 1 ? -(size / 2) : 0;
  std::vector<Point> offsets(volume, Point{0});
  for (int64_t k = 0; k < volume; ++k)
    for (int64_t axis = 0, rest = k; axis < axes; ++axis, rest /= size)
      offsets[k].push_back((first + rest % size) * step);
  return offsets;
}

Point moved(Point point, const Point& offset, int64_t sign) {
  for (size_t i = 0; i < point.size(); ++i) point[i] += sign * offset[i];
  return point;
}

std::map<Point, int64_t> rows_of(const std::vector<Point>& points) {
  std::map<Point, int64_t> rows;
  for (const Point& point : points) rows.emplace(point, static_cast<int64_t>(rows.size()));
  return rows;
}

int64_t axes_of(const SlowCloud& x) {
  return x.points.empty() ? 1 : static_cast<int64_t>(x.points[0].size()) - 1;
}

/// Calls visit(offset, input's row, output's row) where input = output + sign * offset.
void for_neighbours(const SlowCloud& x, const std::vector<Point>& out, const std::vector<Point>& offsets, int64_t sign,
                    const std::function<void(int64_t, int64_t, int64_t)>& visit) {
  const auto rows = rows_of(x.points);
  for (size_t k = 0; k < offsets.size(); ++k)
    for (size_t row = 0; row < out.size(); ++row)
      if (const auto found = rows.find(moved(out[row], offsets[k], sign)); found != rows.end())
        visit(static_cast<int64_t>(k), found->second, static_cast<int64_t>(row));
}

SlowCloud apply_kernel(const at::Tensor& given, const SlowCloud& x, std::vector<Point> out, int64_t out_stride,
                       bool transposed) {
  const at::Tensor kernel = given.dim() == 2 ? given.unsqueeze(0) : given;
  const auto offsets = offsets_of(kernel.size(0), axes_of(x), transposed ? out_stride : x.stride);
  std::vector<std::vector<int64_t>> inputs(offsets.size()), outputs(offsets.size());
  for_neighbours(x, out, offsets, transposed ? -1 : 1, [&](int64_t k, int64_t in, int64_t row) {
    inputs[k].push_back(in);
    outputs[k].push_back(row);
  });
  at::Tensor rows = at::zeros({static_cast<int64_t>(out.size()), kernel.size(2)}, at::kDouble);
  for (size_t k = 0; k < offsets.size(); ++k)
    rows.index_add_(0, at::tensor(outputs[k], at::kLong),
                    x.rows.index_select(0, at::tensor(inputs[k], at::kLong)).matmul(kernel[static_cast<int64_t>(k)]));
  return {std::move(out), rows, out_stride};
}

std::vector<Point> as_list(const std::set<Point>& points) {
  return {points.begin(), points.end()};
}

}  // namespace

SlowCloud slow(const sparse::SparseTensor& x) {
  return {sparse::test::to_points(x.coordinates()), x.features().detach().to(at::kDouble), x.tensor_stride()[0]};
}

at::Tensor rows_at(const SlowCloud& x, const std::vector<Point>& points) {
  const auto rows = rows_of(x.points);
  at::Tensor out = at::zeros({static_cast<int64_t>(points.size()), x.rows.size(1)}, at::kDouble);
  for (size_t i = 0; i < points.size(); ++i)
    if (const auto found = rows.find(points[i]); found != rows.end())
      out[static_cast<int64_t>(i)] = x.rows[found->second];
  return out;
}

void expect_same(const sparse::SparseTensor& got, const SlowCloud& expected, double tolerance) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(expected.points.size()));
  ASSERT_EQ(got.tensor_stride()[0], expected.stride);
  const SlowCloud own = slow(got);
  const auto rows = rows_of(expected.points);
  for (const Point& point : own.points) ASSERT_TRUE(rows.contains(point));
  if (own.points.empty()) return;
  const at::Tensor wanted = rows_at(expected, own.points);
  const double scale = std::max(1.0, wanted.abs().max().item<double>());
  EXPECT_LE((own.rows - wanted).abs().max().item<double>(), tolerance * scale);
}

SlowCloud with_rows(SlowCloud x, const std::function<at::Tensor(const at::Tensor&)>& change) {
  x.rows = change(x.rows);
  return x;
}
SlowCloud relu(const SlowCloud& x) {
  return with_rows(x, [](const at::Tensor& rows) { return at::relu(rows); });
}
SlowCloud elu(const SlowCloud& x) {
  return with_rows(x, [](const at::Tensor& rows) { return at::elu(rows); });
}
SlowCloud leaky_relu(const SlowCloud& x) {
  return with_rows(x, [](const at::Tensor& rows) { return at::leaky_relu(rows); });
}

SlowCloud add(const SlowCloud& a, const SlowCloud& b) {
  std::set<Point> both(a.points.begin(), a.points.end());
  both.insert(b.points.begin(), b.points.end());
  const auto points = as_list(both);
  return {points, rows_at(a, points) + rows_at(b, points), a.stride};
}

SlowCloud cat(const SlowCloud& a, const SlowCloud& b) {
  return {a.points, at::cat({a.rows, rows_at(b, a.points)}, 1), a.stride};
}

SlowCloud max_pool(const SlowCloud& x, int64_t kernel_size, int64_t stride) {
  const auto volume = std::llround(std::pow(kernel_size, axes_of(x)));
  SlowCloud out{rounded(x.points, stride * x.stride), {}, stride * x.stride};
  out.rows = at::full({static_cast<int64_t>(out.points.size()), x.rows.size(1)},
                      -std::numeric_limits<double>::infinity(), at::kDouble);
  for_neighbours(x, out.points, offsets_of(volume, axes_of(x), x.stride), 1,
                 [&](int64_t, int64_t in, int64_t row) { out.rows[row] = at::maximum(out.rows[row], x.rows[in]); });
  return out;
}

SlowCloud prune(const SlowCloud& x, const at::Tensor& keep) {
  SlowCloud out{{}, x.rows.index_select(0, at::nonzero(keep).squeeze(1)), x.stride};
  for (size_t i = 0; i < x.points.size(); ++i)
    if (keep[static_cast<int64_t>(i)].item<bool>()) out.points.push_back(x.points[i]);
  return out;
}

std::vector<Point> rounded(const std::vector<Point>& points, int64_t stride) {
  std::set<Point> out;
  for (Point point : points) {
    for (size_t axis = 1; axis < point.size(); ++axis)
      point[axis] = (point[axis] >= 0 ? point[axis] / stride : -((stride - 1 - point[axis]) / stride)) * stride;
    out.insert(point);
  }
  return as_list(out);
}

SlowNetwork::SlowNetwork(const StateDict& weights) {
  for (const auto& [name, value] : weights) weights_.emplace(name, value.to(at::kDouble).clone());
}

SlowCloud SlowNetwork::with_bias(const std::string& name, SlowCloud x) const {
  if (const auto bias = weights_.find(name + ".bias"); bias != weights_.end()) x.rows = x.rows + bias->second;
  return x;
}

SlowCloud SlowNetwork::convolve(const std::string& name, const SlowCloud& x, int64_t stride) const {
  const int64_t out_stride = stride * x.stride;
  return with_bias(name, apply_kernel(weight(name + ".kernel"), x, rounded(x.points, out_stride), out_stride, false));
}

SlowCloud SlowNetwork::convolve_up(const std::string& name, const SlowCloud& x, int64_t stride,
                                   std::vector<Point> points) const {
  return with_bias(name, apply_kernel(weight(name + ".kernel"), x, std::move(points), x.stride / stride, true));
}

SlowCloud SlowNetwork::grow(const std::string& name, const SlowCloud& x, int64_t stride) const {
  std::set<Point> reached;
  for (const Point& offset : offsets_of(weight(name + ".kernel").size(0), axes_of(x), x.stride / stride))
    for (const Point& point : x.points) reached.insert(moved(point, offset, 1));
  return convolve_up(name, x, stride, as_list(reached));
}

SlowCloud SlowNetwork::norm(const std::string& name, const SlowCloud& x) const {
  return with_rows(x, [&](const at::Tensor& rows) { return norm(name, rows); });
}

at::Tensor SlowNetwork::norm(const std::string& name, const at::Tensor& rows) const {
  const auto of = [&](const char* what) { return weight(name + ".bn." + what); };
  return (rows - of("running_mean")) / (of("running_var") + 1e-5).sqrt() * of("weight") + of("bias");
}

at::Tensor SlowNetwork::linear(const std::string& name, const at::Tensor& rows) const {
  const at::Tensor product = rows.matmul(weight(name + ".weight").t());
  const auto bias = weights_.find(name + ".bias");
  return bias == weights_.end() ? product : product + bias->second;
}

void scramble_statistics(torch::nn::Module& network) {
  const at::NoGradGuard no_grad;
  for (const auto& item : network.named_buffers()) {
    at::Tensor value = item.value();
    if (item.key().ends_with("running_mean")) value.copy_(0.1 * at::randn_like(value));
    if (item.key().ends_with("running_var")) value.copy_(0.5 + at::rand_like(value));
  }
}

}  // namespace lockstep::models::test
