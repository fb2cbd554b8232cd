// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "dense/cpu/image_kernel.h"
#include "dense/geometry.h"

// One line of a filter (kernel_width x channels values) lies side by side in a channels-last image, so the rows of the
// usual matrix of patches are pieces of the image itself, one for each line of the filter. Forward multiplies them by
// the weights. The gradient of the image multiplies by the transposed weights and adds the pieces back where they came
// from. The gradient of the weights adds up outer products of pieces and gradients, point by point.

namespace lockstep::dense::cpu {
namespace {

constexpr int64_t kTileValues = 16384;  // of sums that stay in the second-level cache

at::Tensor scratch(const at::Tensor& like, int64_t values) {
  return at::empty({values}, like.options());
}

/// The images of a batch with their padding, one after the other.
template <class T>
class FullImages {
 public:
  FullImages(const Geometry& geometry, const at::Tensor& x) : g_(geometry), x_(x.const_data_ptr<T>()) {
    if (!g_.has_padding()) return;
    full_ = scratch(x, g_.full_size());
    std::fill_n(full_.mutable_data_ptr<T>(), g_.full_size(), T(0));
  }

  const T* image(int64_t number) const {
    const int64_t row = g_.width * g_.channels;
    const T* from = x_ + number * g_.height * row;
    if (!g_.has_padding()) return from;
    T* full = full_.mutable_data_ptr<T>();
    for (int64_t y = 0; y < g_.height; ++y) std::memcpy(full + g_.inner(y), from + y * row, row * sizeof(T));
    return full;
  }

 private:
  const Geometry& g_;
  const T* x_;
  at::Tensor full_;
};

template <class T>
void forward(const Geometry& g, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
             const at::Tensor& y) {
  const ImageKernels<T>& kernel = image_kernels<T>();
  const at::Tensor packed = scratch(x, g.filter_size() * kernel.padded(g.filters));
  kernel.pack(weight.const_data_ptr<T>(), rows_of(g), g.filters, 1, g.filter_size(), packed.mutable_data_ptr<T>());
  const std::vector<int64_t> corners = corners_of(g);
  const FullImages<T> full(g, x);
  const T* start = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
  T* out = y.mutable_data_ptr<T>();
  for (int64_t image = 0; image < g.images; ++image, out += g.points() * g.filters)
    kernel.multiply(full.image(image), corners.data(), g.points(), rows_of(g), g.filters, packed.const_data_ptr<T>(),
                    start, out);
}

template <class T>
void backward_input(const Geometry& g, const at::Tensor& gradient, const at::Tensor& weight,
                    const at::Tensor& x_gradient) {
  const ImageKernels<T>& kernel = image_kernels<T>();
  const at::Tensor packed = scratch(weight, g.filters * kernel.padded(g.filter_size()));
  const Rows points_rows{1, g.filters, 0};
  kernel.pack(weight.const_data_ptr<T>(), points_rows, g.filter_size(), g.filter_size(), 1,
              packed.mutable_data_ptr<T>());
  const int64_t tile = std::clamp<int64_t>(kTileValues / g.filter_size(), 12, g.points() + 12);
  const at::Tensor products = scratch(weight, tile * g.filter_size()), full = scratch(weight, g.full_size());
  std::vector<int64_t> points(tile);
  for (int64_t p = 0; p < tile; ++p) points[p] = p * g.filters;
  const std::vector<int64_t> corners = corners_of(g);
  T* const product = products.mutable_data_ptr<T>();
  T* const sum = full.mutable_data_ptr<T>();
  const T* from = gradient.const_data_ptr<T>();
  T* out = x_gradient.mutable_data_ptr<T>();
  const int64_t row = g.width * g.channels;
  for (int64_t image = 0; image < g.images; ++image) {
    std::fill_n(sum, g.full_size(), T(0));
    for (int64_t p = 0; p < g.points(); p += tile) {
      const int64_t count = std::min(tile, g.points() - p);
      kernel.multiply(from, points.data(), count, points_rows, g.filter_size(), packed.const_data_ptr<T>(), nullptr,
                      product);
      kernel.scatter(product, corners.data() + p, count, rows_of(g), sum);
      from += count * g.filters;
    }
    for (int64_t y = 0; y < g.height; ++y, out += row) std::memcpy(out, sum + g.inner(y), row * sizeof(T));
  }
}

template <class T>
void backward_weight(const Geometry& g, const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& into,
                     const at::Tensor& bias_into) {
  const ImageKernels<T>& kernel = image_kernels<T>();
  const int64_t width = kernel.padded(g.filters);
  const at::Tensor sums = scratch(x, g.filter_size() * width);
  T* const sum = sums.mutable_data_ptr<T>();
  std::fill_n(sum, sums.numel(), T(0));
  std::vector<T> bias_sum(g.filters, T(0));
  const std::vector<int64_t> corners = corners_of(g);
  const FullImages<T> full(g, x);
  const T* from = gradient.const_data_ptr<T>();
  for (int64_t image = 0; image < g.images; ++image, from += g.points() * g.filters) {
    if (bias_into.defined()) kernel.sum_rows(from, g.points(), g.filters, bias_sum.data());
    if (into.defined()) kernel.outer(full.image(image), corners.data(), g.points(), rows_of(g), g.filters, from, sum);
  }
  if (bias_into.defined()) std::ranges::copy(bias_sum, bias_into.mutable_data_ptr<T>());
  if (!into.defined()) return;
  T* to = into.mutable_data_ptr<T>();
  for (int64_t filter = 0; filter < g.filters; ++filter)
    for (int64_t i = 0; i < g.filter_size(); ++i) *to++ = sum[i * width + filter];
}

}  // namespace

void convolution(const Geometry& geometry, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                 const at::Tensor& y) {
  with_type(x, [&]<class T>() { forward<T>(geometry, x, weight, bias, y); });
}

void input_gradient(const Geometry& geometry, const at::Tensor& gradient, const at::Tensor& weight,
                    const at::Tensor& x_gradient) {
  with_type(weight, [&]<class T>() { backward_input<T>(geometry, gradient, weight, x_gradient); });
}

void weight_gradient(const Geometry& geometry, const at::Tensor& gradient, const at::Tensor& x,
                     const at::Tensor& weight_gradient, const at::Tensor& bias_gradient) {
  with_type(x, [&]<class T>() { backward_weight<T>(geometry, gradient, x, weight_gradient, bias_gradient); });
}

}  // namespace lockstep::dense::cpu
