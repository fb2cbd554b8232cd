// SPDX-License-Identifier: Apache-2.0
#include "dense/cpu/pooled_convolution.h"

#include <optional>

#include "dense/cpu/image_products.h"

namespace lockstep::dense::cpu {
namespace {

int64_t signs_of_image(const Geometry& geometry) {
  // The same for float32 and float64: the wider vectors.
  return geometry.points() * image_kernels<float>().padded(geometry.filters);
}

}  // namespace

int64_t signs_size(const Geometry& geometry) {
  return geometry.images * signs_of_image(geometry);
}

void pooled_convolution(const Geometry& geometry, const Geometry& windows, const at::Tensor& x,
                        const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& signs,
                        const at::Tensor& y) {
  with_type(x, [&]<class T>() {
    const Products<T> products(geometry, x, weight, bias);
    const std::vector<int64_t> corners = corners_of(windows);
    const at::Tensor between = scratch(x, geometry.point_values());
    T *const values = between.mutable_data_ptr<T>(), *out = y.mutable_data_ptr<T>();
    int8_t* sign = signs.mutable_data_ptr<int8_t>();
    for (int64_t image = 0; image < geometry.images; ++image) {
      products.write(image, values);
      image_kernels<T>().average_positive(values, {corners.data(), windows.points(), rows_of(windows)},
                                          geometry.filters, sign, out);
      sign += signs_of_image(geometry);
      out += windows.points() * geometry.filters;
    }
  });
}

void pooled_gradients(const Geometry& geometry, const Geometry& windows, const at::Tensor& gradient,
                      const at::Tensor& x, const at::Tensor& weight, const at::Tensor& signs,
                      const at::Tensor& x_gradient, const at::Tensor& weight_gradient,
                      const at::Tensor& bias_gradient) {
  with_type(x, [&]<class T>() {
    std::optional<InputGradient<T>> input;
    if (x_gradient.defined()) input.emplace(geometry, weight);
    WeightGradient<T> sums(geometry, x, weight_gradient, bias_gradient);
    const std::vector<int64_t> corners = corners_of(windows);
    const at::Tensor between = scratch(x, geometry.point_values());
    T* const values = between.mutable_data_ptr<T>();
    const T* from = gradient.const_data_ptr<T>();
    const int8_t* sign = signs.const_data_ptr<int8_t>();
    for (int64_t image = 0; image < geometry.images; ++image) {
      image_kernels<T>().spread_positive(from, {corners.data(), windows.points(), rows_of(windows)}, geometry.filters,
                                         sign, values);
      if (input) input->write(values, x_gradient.mutable_data_ptr<T>() + image * geometry.image_values());
      sums.add(image, values);
      sign += signs_of_image(geometry);
      from += windows.points() * geometry.filters;
    }
    sums.write();
  });
}

}  // namespace lockstep::dense::cpu
