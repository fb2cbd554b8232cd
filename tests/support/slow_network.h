// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/models/state_dict.h"
#include "lockstep/sparse/sparse_tensor.h"
#include "support/clouds.h"

/// Networks of sparse convolutions, spelled out: neighbours are looked up one by one, in float64, and weights by name.
namespace lockstep::models::test {

using sparse::test::Point;

struct SlowCloud {
  std::vector<Point> points;
  at::Tensor rows;  ///< [points, C] float64
  int64_t stride = 1;
};

SlowCloud slow(const sparse::SparseTensor& x);

/// The same points with the same rows, in whatever order.
void expect_same(const sparse::SparseTensor& got, const SlowCloud& expected, double tolerance = 1e-10);

/// Each of a function of rows.
SlowCloud with_rows(SlowCloud x, const std::function<at::Tensor(const at::Tensor&)>& change);
SlowCloud relu(const SlowCloud& x);
SlowCloud elu(const SlowCloud& x);
SlowCloud leaky_relu(const SlowCloud& x);
/// At the points of both; what one lacks counts as zero.
SlowCloud add(const SlowCloud& a, const SlowCloud& b);
/// Channels side by side, at the points of `a`.
SlowCloud cat(const SlowCloud& a, const SlowCloud& b);
SlowCloud max_pool(const SlowCloud& x, int64_t kernel_size, int64_t stride);
/// The points for which `keep` holds.
SlowCloud prune(const SlowCloud& x, const at::Tensor& keep);
/// The rows of x at `points`, zero where it has none.
at::Tensor rows_at(const SlowCloud& x, const std::vector<Point>& points);
/// Points rounded down to a stride, each once.
std::vector<Point> rounded(const std::vector<Point>& points, int64_t stride);

/// The layers of a network by the names of their weights, in evaluation.
class SlowNetwork {
 public:
  /// Of a copy of the weights, as float64.
  explicit SlowNetwork(const StateDict& weights);
  explicit SlowNetwork(const torch::nn::Module& network) : SlowNetwork(state_dict(network)) {}

  /// The kernel size follows from the kernel.
  SlowCloud convolve(const std::string& name, const SlowCloud& x, int64_t stride = 1) const;
  /// Transposed, to these points.
  SlowCloud convolve_up(const std::string& name, const SlowCloud& x, int64_t stride, std::vector<Point> points) const;
  /// Transposed, to all points that it reaches.
  SlowCloud grow(const std::string& name, const SlowCloud& x, int64_t stride) const;
  SlowCloud norm(const std::string& name, const SlowCloud& x) const;
  at::Tensor norm(const std::string& name, const at::Tensor& rows) const;
  at::Tensor linear(const std::string& name, const at::Tensor& rows) const;

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  SlowCloud with_bias(const std::string& name, SlowCloud x) const;

  StateDict weights_;
};

/// Draws running statistics that are neither zero nor one, so that evaluation shows whether they are used.
void scramble_statistics(torch::nn::Module& network);

}  // namespace lockstep::models::test
