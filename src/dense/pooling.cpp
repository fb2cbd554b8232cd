// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dense/pooling.h"

#include <algorithm>
#include <vector>

#include "dense/cpu/image_kernel.h"
#include "dense/geometry.h"
#include "lockstep/base/error.h"

namespace lockstep::dense {
namespace {

Geometry windows_of(const char* operation, const at::Tensor& tensor, at::IntArrayRef sizes,
                    const PoolingOptions& options) {
  require(sizes.size() == 4 && tensor.is_cpu() &&
              (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble),
          operation, "got ", tensor.scalar_type(), sizes, " on ", tensor.device(),
          ", expected float32 or float64 [N, C, H, W] on the CPU");
  const auto [kernel, stride] = options;
  require(kernel[0] > 0 && kernel[1] > 0 && stride[0] > 0 && stride[1] > 0, operation, "the kernel is ", kernel[0],
          " x ", kernel[1], " and the stride ", stride[0], " x ", stride[1], ", expected at least 1");
  require(sizes[2] >= kernel[0] && sizes[3] >= kernel[1], operation, "the image is ", sizes[2], " x ", sizes[3],
          ", expected at least the kernel's ", kernel[0], " x ", kernel[1]);
  return windows_on(sizes[0], sizes[2], sizes[3], kernel, stride);
}

}  // namespace

at::Tensor average_pooling(const at::Tensor& x, const PoolingOptions& options) {
  const Geometry g = windows_of("dense::average_pooling", x, x.sizes(), options);
  const int64_t channels = x.size(1);
  const at::Tensor given = channels_last(x);
  at::Tensor y = empty_image(x, {g.images, channels, g.out_height, g.out_width});
  const std::vector<int64_t> corners = corners_of(g);
  with_type(x, [&]<class T>() {
    const T* from = given.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    for (int64_t image = 0; image < g.images; ++image, from += g.full_size() * channels, to += g.points() * channels)
      image_kernels<T>().average(from, {corners.data(), g.points(), rows_of(g)}, channels, to);
  });
  return y;
}

at::Tensor average_pooling_backward(const at::Tensor& gradient, at::IntArrayRef sizes, const PoolingOptions& options) {
  constexpr const char* operation = "dense::average_pooling_backward";
  const Geometry g = windows_of(operation, gradient, sizes, options);
  const int64_t channels = sizes[1], values = g.full_size() * channels;
  require(gradient.sizes() == at::IntArrayRef({g.images, channels, g.out_height, g.out_width}), operation,
          "the gradient is ", gradient.sizes(), ", expected [", g.images, ", ", channels, ", ", g.out_height, ", ",
          g.out_width, "]");
  const at::Tensor given = channels_last(gradient);
  at::Tensor x_gradient = empty_image(gradient, sizes);
  const std::vector<int64_t> corners = corners_of(g);
  with_type(gradient, [&]<class T>() {
    const T* from = given.const_data_ptr<T>();
    T* to = x_gradient.mutable_data_ptr<T>();
    for (int64_t image = 0; image < g.images; ++image, to += values, from += g.points() * channels) {
      std::fill_n(to, values, T(0));
      image_kernels<T>().spread(from, {corners.data(), g.points(), rows_of(g)}, channels, to);
    }
  });
  return x_gradient;
}

}  // namespace lockstep::dense
