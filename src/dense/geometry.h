// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "dense/cpu/image_kernel.h"
#include "lockstep/dense/convolution.h"

namespace lockstep::dense {

/// The sizes of one convolution.
struct Geometry {
  int64_t images, height, width, channels, filters;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width, pad_height, pad_width;
  int64_t out_height, out_width;

  /// Of an image with its padding.
  int64_t full_height() const { return height + 2 * pad_height; }
  int64_t full_width() const { return width + 2 * pad_width; }
  int64_t full_size() const { return full_height() * full_width() * channels; }
  bool has_padding() const { return pad_height > 0 || pad_width > 0; }

  /// Values of one line of a filter: they lie side by side in a channels-last image.
  int64_t line() const { return kernel_width * channels; }
  int64_t filter_size() const { return kernel_height * line(); }
  int64_t points() const { return out_height * out_width; }
  /// Of an image's output, and of an image.
  int64_t point_values() const { return points() * filters; }
  int64_t image_values() const { return height * width * channels; }

  /// Where line y of the image itself begins in a full one.
  int64_t inner(int64_t y) const { return ((y + pad_height) * full_width() + pad_width) * channels; }
  /// Where the filter begins in a full image for output point (y, x).
  int64_t corner(int64_t y, int64_t x) const {
    return (y * stride_height * full_width() + x * stride_width) * channels;
  }
};

/// Throws Error where these tensors are no convolution.
Geometry geometry_of(const at::Tensor& x, const at::Tensor& weight, const ConvolutionOptions& options);

inline at::Tensor channels_last(const at::Tensor& x) {
  return x.contiguous(at::MemoryFormat::ChannelsLast);
}

/// Channels-last, of what `like` has.
at::Tensor empty_image(const at::Tensor& like, at::IntArrayRef sizes);

/// Windows on images, as a filter on images of one channel: each value is a point.
Geometry windows_on(int64_t images, int64_t height, int64_t width, std::array<int64_t, 2> window,
                    std::array<int64_t, 2> stride);

/// Where the filter begins in a full image, for each point.
std::vector<int64_t> corners_of(const Geometry& geometry);

/// A filter's lines in a full image.
inline Rows rows_of(const Geometry& g) {
  return {g.kernel_height, g.line(), g.full_width() * g.channels};
}

template <class T>
const ImageKernels<T>& image_kernels() {
  if constexpr (std::is_same_v<T, double>)
    return LOCKSTEP_SELECT_ISA(image_kernels_f64)();
  else
    return LOCKSTEP_SELECT_ISA(image_kernels_f32)();
}

/// Calls work.operator()<T>() with the tensor's type.
template <class Work>
void with_type(const at::Tensor& tensor, const Work& work) {
  if (tensor.scalar_type() == at::kDouble)
    work.template operator()<double>();
  else
    work.template operator()<float>();
}

namespace cpu {

// Tensors are channels-last and of one type; bias, and gradients that nobody wants, are undefined.
void convolution(const Geometry& geometry, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                 const at::Tensor& y);
void input_gradient(const Geometry& geometry, const at::Tensor& gradient, const at::Tensor& weight,
                    const at::Tensor& x_gradient);
void weight_gradient(const Geometry& geometry, const at::Tensor& gradient, const at::Tensor& x,
                     const at::Tensor& weight_gradient, const at::Tensor& bias_gradient);

}  // namespace cpu
}  // namespace lockstep::dense
