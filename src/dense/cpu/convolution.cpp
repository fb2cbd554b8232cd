// SPDX-License-Identifier: Apache-2.0
#include "dense/cpu/image_products.h"

namespace lockstep::dense::cpu {

void convolution(const Geometry& geometry, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                 const at::Tensor& y) {
  with_type(x, [&]<class T>() {
    const Products<T> products(geometry, x, weight, bias);
    T* out = y.mutable_data_ptr<T>();
    for (int64_t image = 0; image < geometry.images; ++image, out += geometry.point_values())
      products.write(image, out);
  });
}

void input_gradient(const Geometry& geometry, const at::Tensor& gradient, const at::Tensor& weight,
                    const at::Tensor& x_gradient) {
  with_type(weight, [&]<class T>() {
    const InputGradient<T> product(geometry, weight);
    const T* from = gradient.const_data_ptr<T>();
    T* out = x_gradient.mutable_data_ptr<T>();
    for (int64_t image = 0; image < geometry.images; ++image, from += geometry.point_values())
      product.write(from, out + image * geometry.image_values());
  });
}

void weight_gradient(const Geometry& geometry, const at::Tensor& gradient, const at::Tensor& x,
                     const at::Tensor& weight_gradient, const at::Tensor& bias_gradient) {
  with_type(x, [&]<class T>() {
    WeightGradient<T> sums(geometry, x, weight_gradient, bias_gradient);
    const T* from = gradient.const_data_ptr<T>();
    for (int64_t image = 0; image < geometry.images; ++image, from += geometry.point_values()) sums.add(image, from);
    sums.write();
  });
}

}  // namespace lockstep::dense::cpu
