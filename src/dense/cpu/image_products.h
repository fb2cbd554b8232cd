// SPDX-License-Identifier: Apache-2.0
#pragma once

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
//
// Each of the three goes image by image; what it writes or reads of the output are the geometry's points.

namespace lockstep::dense::cpu {

inline at::Tensor scratch(const at::Tensor& like, int64_t values) {
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
class Products {
 public:
  Products(const Geometry& geometry, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)
      : g_(geometry),
        packed_(scratch(x, g_.filter_size() * kernel_.padded(g_.filters))),
        corners_(corners_of(g_)),
        full_(g_, x),
        start_(bias.defined() ? bias.const_data_ptr<T>() : nullptr) {
    kernel_.pack(weight.const_data_ptr<T>(), rows_of(g_), g_.filters, 1, g_.filter_size(),
                 packed_.mutable_data_ptr<T>());
  }

  void write(int64_t image, T* out) const {
    kernel_.multiply(full_.image(image), corners_.data(), g_.points(), rows_of(g_), g_.filters,
                     packed_.const_data_ptr<T>(), start_, out);
  }

 private:
  const ImageKernels<T>& kernel_ = image_kernels<T>();
  const Geometry& g_;
  at::Tensor packed_;
  std::vector<int64_t> corners_;
  FullImages<T> full_;
  const T* start_;
};

template <class T>
class InputGradient {
 public:
  InputGradient(const Geometry& geometry, const at::Tensor& weight)
      : g_(geometry),
        row_{1, g_.filters, 0},
        tile_(std::clamp<int64_t>(kTileValues / g_.filter_size(), 12, g_.points() + 12)),
        packed_(scratch(weight, g_.filters * kernel_.padded(g_.filter_size()))),
        products_(scratch(weight, tile_ * g_.filter_size())),
        full_(scratch(weight, g_.full_size())),
        corners_(corners_of(g_)) {
    kernel_.pack(weight.const_data_ptr<T>(), row_, g_.filter_size(), g_.filter_size(), 1,
                 packed_.mutable_data_ptr<T>());
    for (int64_t p = 0; p < tile_; ++p) points_.push_back(p * g_.filters);
  }

  /// The gradient of an image, from that of its points.
  void write(const T* gradient, T* out) const {
    T *const product = products_.mutable_data_ptr<T>(), *const sum = full_.mutable_data_ptr<T>();
    std::fill_n(sum, g_.full_size(), T(0));
    for (int64_t p = 0; p < g_.points(); p += tile_) {
      const int64_t count = std::min(tile_, g_.points() - p);
      kernel_.multiply(gradient + p * g_.filters, points_.data(), count, row_, g_.filter_size(),
                       packed_.const_data_ptr<T>(), nullptr, product);
      kernel_.scatter(product, corners_.data() + p, count, rows_of(g_), sum);
    }
    const int64_t row = g_.width * g_.channels;
    for (int64_t y = 0; y < g_.height; ++y, out += row) std::memcpy(out, sum + g_.inner(y), row * sizeof(T));
  }

 private:
  static constexpr int64_t kTileValues = 16384;  // of sums that stay in the second-level cache

  const ImageKernels<T>& kernel_ = image_kernels<T>();
  const Geometry& g_;
  Rows row_;
  int64_t tile_;
  at::Tensor packed_, products_, full_;
  std::vector<int64_t> corners_, points_;
};

/// Sums over the images of a batch; into tensors that may be undefined.
template <class T>
class WeightGradient {
 public:
  WeightGradient(const Geometry& geometry, const at::Tensor& x, const at::Tensor& into, const at::Tensor& bias_into)
      : g_(geometry),
        into_(into),
        bias_into_(bias_into),
        full_(g_, x),
        corners_(corners_of(g_)),
        sums_(into.defined() ? g_.filter_size() * width_ : 0, T(0)),
        bias_sums_(g_.filters, T(0)) {}

  void add(int64_t image, const T* gradient) {
    if (bias_into_.defined()) kernel_.sum_rows(gradient, g_.points(), g_.filters, bias_sums_.data());
    if (into_.defined())
      kernel_.outer(full_.image(image), corners_.data(), g_.points(), rows_of(g_), g_.filters, gradient, sums_.data());
  }

  void write() const {
    if (bias_into_.defined()) std::ranges::copy(bias_sums_, bias_into_.mutable_data_ptr<T>());
    if (!into_.defined()) return;
    T* to = into_.mutable_data_ptr<T>();
    for (int64_t filter = 0; filter < g_.filters; ++filter)
      for (int64_t i = 0; i < g_.filter_size(); ++i) *to++ = sums_[i * width_ + filter];
  }

 private:
  const ImageKernels<T>& kernel_ = image_kernels<T>();
  const Geometry& g_;
  at::Tensor into_, bias_into_;
  FullImages<T> full_;
  std::vector<int64_t> corners_;
  int64_t width_ = kernel_.padded(g_.filters);
  std::vector<T> sums_, bias_sums_;
};

}  // namespace lockstep::dense::cpu
