// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "lockstep/base/detail/parallel_for.h"
#include "norm/cpu/strided_kernel.h"
#include "norm/strided.h"

// A tensor is either planes (contiguous [N, C, S]) or rows (channels-last, or [N, C]). Sums over planes are cut by
// channel and sums over rows by a fixed number of rows, never by the number of threads.

namespace lockstep::norm::cpu {
namespace {

constexpr int64_t kSliceRows = 512;
constexpr int64_t kGrain = 32768;  // elements that are worth a thread

template <class T>
const BatchNormKernels<T>& kernels() {
  if constexpr (std::is_same_v<T, float>)
    return LOCKSTEP_SELECT_ISA(float_batch_norm)();
  else
    return LOCKSTEP_SELECT_ISA(double_batch_norm)();
}

struct Shape {
  int64_t batch, channels, plane;  // rows where plane == 1

  int64_t rows() const { return batch * plane; }
};

at::MemoryFormat format_of(const at::Tensor& x) {
  return x.dim() >= 4 ? x.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

Shape shape_of(const at::Tensor& x) {
  const int64_t plane = c10::multiply_integers(x.sizes().slice(2));
  if (format_of(x) != at::MemoryFormat::Contiguous) return {x.size(0) * plane, x.size(1), 1};
  return {x.size(0), x.size(1), plane};
}

/// float32 and float64 as they are, the rest as float32.
at::Tensor computable(const at::Tensor& x, at::MemoryFormat format) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).contiguous(format);
}

template <class T>
std::vector<T> values(const at::Tensor& statistic) {
  if (statistic.scalar_type() == at::kDouble && statistic.is_contiguous()) {
    const double* data = statistic.const_data_ptr<double>();
    std::vector<T> out(static_cast<size_t>(statistic.numel()));
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(data[i]);
    return out;
  }
  const at::Tensor given = statistic.to(c10::CppTypeToScalarType<T>::value).contiguous();
  return {given.const_data_ptr<T>(), given.const_data_ptr<T>() + given.numel()};
}

/// Calls work(plane, channel) for all planes.
template <class Work>
void for_each_plane(Shape shape, const Work& work) {
  parallel_for(0, shape.batch * shape.channels, 1 + kGrain / (1 + shape.plane), [&](int64_t from, int64_t to) {
    for (int64_t plane = from; plane < to; ++plane) work(plane, plane % shape.channels);
  });
}

/// Calls work(first row, number of rows) for parts of all rows.
template <class Work>
void for_each_part(Shape shape, const Work& work) {
  parallel_for(0, shape.rows(), 1 + kGrain / (1 + shape.channels),
               [&](int64_t from, int64_t to) { work(from, to - from); });
}

/// Two sums a channel: of_plane(channel, sums[2]) adds up one channel, of_rows(first row, rows, sums[2, C]) a slice.
template <class OfPlane, class OfRows>
at::Tensor two_sums(Shape shape, const OfPlane& of_plane, const OfRows& of_rows) {
  at::Tensor result = at::zeros({2, shape.channels}, at::kDouble);
  double* out = result.mutable_data_ptr<double>();
  if (shape.rows() == 0) return result;
  if (shape.plane > 1) {
    parallel_for(0, shape.channels, 1 + kGrain / shape.rows(), [&](int64_t from, int64_t to) {
      for (int64_t c = from; c < to; ++c) {
        double sums[2] = {};
        of_plane(c, sums);
        out[c] = sums[0];
        out[shape.channels + c] = sums[1];
      }
    });
    return result;
  }
  const int64_t size = 2 * shape.channels, slices = (shape.rows() + kSliceRows - 1) / kSliceRows;
  std::vector<double> parts(slices * size);
  parallel_for(0, slices, 1 + kGrain / (1 + kSliceRows * shape.channels), [&](int64_t from, int64_t to) {
    for (int64_t s = from; s < to; ++s)
      of_rows(s * kSliceRows, std::min(kSliceRows, shape.rows() - s * kSliceRows), parts.data() + s * size);
  });
  for (int64_t s = 0; s < slices; ++s)
    for (int64_t i = 0; i < size; ++i) out[i] += parts[s * size + i];
  return result;
}

}  // namespace

at::Tensor batch_moments(const at::Tensor& x) {
  const at::MemoryFormat format = format_of(x);
  const Shape shape = shape_of(x);
  const at::Tensor given = computable(x, format);
  at::Tensor moments = at::empty({3, shape.channels}, at::kDouble);
  AT_DISPATCH_FLOATING_TYPES(given.scalar_type(), "batch_moments", [&] {
    const auto& kernel = kernels<scalar_t>();
    const scalar_t* data = given.const_data_ptr<scalar_t>();
    // Deviations are taken from each channel's first element: then nothing cancels where the mean is far from zero.
    std::vector<double> shift(shape.channels);
    if (shape.rows() > 0)
      for (int64_t c = 0; c < shape.channels; ++c) shift[c] = static_cast<double>(data[c * shape.plane]);
    const at::Tensor sums = two_sums(
        shape,
        [&](int64_t c, double* out) {
          kernel.plane_moments(data + c * shape.plane, shape.batch, shape.channels * shape.plane, shape.plane, shift[c],
                               out);
        },
        [&](int64_t row, int64_t rows, double* out) {
          kernel.row_moments(data + row * shape.channels, rows, shape.channels, shift.data(), out);
        });
    const double *sum = sums.const_data_ptr<double>(), count = static_cast<double>(shape.rows());
    double* out = moments.mutable_data_ptr<double>();
    for (int64_t c = 0; c < shape.channels; ++c) {
      const double mean = count > 0 ? sum[c] / count : 0;
      out[c] = count;
      out[shape.channels + c] = shift[c] + mean;
      // NaN must stay NaN: std::max(x, 0) with x first returns it
      out[2 * shape.channels + c] = std::max(sum[shape.channels + c] - sum[c] * mean, 0.0);
    }
  });
  return moments;
}

at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                           const at::Tensor& bias) {
  const at::MemoryFormat format = format_of(x);
  const Shape shape = shape_of(x);
  const at::Tensor given = computable(x, format);
  at::Tensor y = at::empty(given.sizes(), given.options(), format);
  AT_DISPATCH_FLOATING_TYPES(given.scalar_type(), "batch_normalize", [&] {
    const auto& kernel = kernels<scalar_t>();
    const auto m = values<scalar_t>(mean), s = values<scalar_t>(scale), b = values<scalar_t>(bias);
    const scalar_t* data = given.const_data_ptr<scalar_t>();
    scalar_t* out = y.mutable_data_ptr<scalar_t>();
    if (shape.plane > 1)
      for_each_plane(shape, [&](int64_t plane, int64_t c) {
        const int64_t at = plane * shape.plane;
        kernel.plane_normalize(data + at, out + at, shape.plane, m[c], s[c], b[c]);
      });
    else
      for_each_part(shape, [&](int64_t row, int64_t rows) {
        const int64_t at = row * shape.channels;
        kernel.row_normalize(data + at, out + at, rows, shape.channels, m.data(), s.data(), b.data());
      });
  });
  return y.to(x.scalar_type());
}

at::Tensor batch_gradient_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean) {
  const at::MemoryFormat format = format_of(x);
  const Shape shape = shape_of(x);
  const at::Tensor given = computable(x, format), gradient = computable(g.to(x.scalar_type()), format);
  at::Tensor sums;
  AT_DISPATCH_FLOATING_TYPES(given.scalar_type(), "batch_gradient_sums", [&] {
    const auto& kernel = kernels<scalar_t>();
    const auto m = values<double>(mean);
    const scalar_t *data = given.const_data_ptr<scalar_t>(), *grad = gradient.const_data_ptr<scalar_t>();
    sums = two_sums(
        shape,
        [&](int64_t c, double* out) {
          const int64_t at = c * shape.plane;
          kernel.plane_sums(grad + at, data + at, shape.batch, shape.channels * shape.plane, shape.plane, m[c], out);
        },
        [&](int64_t row, int64_t rows, double* out) {
          const int64_t at = row * shape.channels;
          kernel.row_sums(grad + at, data + at, rows, shape.channels, m.data(), out);
        });
  });
  return sums;
}

at::Tensor batch_input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& scale, const at::Tensor& part, const at::Tensor& slope) {
  const at::MemoryFormat format = format_of(x);
  const Shape shape = shape_of(x);
  const at::Tensor given = computable(x, format), gradient = computable(g.to(x.scalar_type()), format);
  at::Tensor dx = at::empty(given.sizes(), given.options(), format);
  AT_DISPATCH_FLOATING_TYPES(given.scalar_type(), "batch_input_gradient", [&] {
    const auto& kernel = kernels<scalar_t>();
    const auto m = values<scalar_t>(mean), s = values<scalar_t>(scale), p = values<scalar_t>(part),
               k = values<scalar_t>(slope);
    const scalar_t *data = given.const_data_ptr<scalar_t>(), *grad = gradient.const_data_ptr<scalar_t>();
    scalar_t* out = dx.mutable_data_ptr<scalar_t>();
    if (shape.plane > 1)
      for_each_plane(shape, [&](int64_t plane, int64_t c) {
        const int64_t at = plane * shape.plane;
        kernel.plane_gradient(grad + at, data + at, out + at, shape.plane, m[c], s[c], p[c], k[c]);
      });
    else
      for_each_part(shape, [&](int64_t row, int64_t rows) {
        const int64_t at = row * shape.channels;
        kernel.row_gradient(grad + at, data + at, out + at, rows, shape.channels, m.data(), s.data(), p.data(),
                            k.data());
      });
  });
  return dx.to(x.scalar_type());
}

}  // namespace lockstep::norm::cpu
