// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <vector>

#include "lockstep/base/detail/parallel_for.h"
#include "lockstep/norm/detail/row_kernels.h"
#include "lockstep/numerics/detail/portable.h"

// Statistics are made slice by slice, each slice a fixed number of rows, and merged as a balanced tree in float64. The
// sums of strided.cpp are made otherwise, and one order in place of both would change the bits of one kind of network.

namespace lockstep::norm::cpu {
namespace {

using portable::Compute;

constexpr int64_t kNormSlice = 256;

template <class T>
std::vector<T> values_of(const at::Tensor& tensor) {
  const at::Tensor given = tensor.to(c10::CppTypeToScalarType<T>::value).contiguous();
  return {given.const_data_ptr<T>(), given.const_data_ptr<T>() + given.numel()};
}

/// Runs work(first row, end row, index) for each slice of rows.
template <class Work>
int64_t for_each_slice(int64_t rows, const Work& work) {
  const int64_t slices = std::max<int64_t>(1, (rows + kNormSlice - 1) / kNormSlice);
  parallel_for(0, slices, 4, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) work(s * kNormSlice, std::min(rows, (s + 1) * kNormSlice), s);
  });
  return slices;
}

/// Merges pieces [0, count) of `size` values into the first, in the order of a balanced tree.
template <class Merge>
void merge_as_tree(double* pieces, int64_t count, int64_t size, const Merge& merge) {
  for (int64_t step = 1; step < count; step *= 2)
    for (int64_t i = 0; i + step < count; i += 2 * step) merge(pieces + i * size, pieces + (i + step) * size);
}

/// Joins (count, mean, squares) of two sets of rows, per channel, into the first.
void merge_moments(double* into, const double* from, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) {
    const double a = into[c], b = from[c];
    if (b == 0) continue;
    const double delta = from[channels + c] - into[channels + c];
    into[c] = a + b;
    into[channels + c] += delta * b / (a + b);
    into[2 * channels + c] += from[2 * channels + c] + delta * delta * a * b / (a + b);
  }
}

template <class Storage>
void slice_moments(const Storage* x, int64_t rows, int64_t channels, double* out) {
  using T = Compute<Storage>;
  std::vector<T> sum(channels, T(0)), squares(channels, T(0));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t c = 0; c < channels; ++c) sum[c] += static_cast<T>(x[row * channels + c]);
  for (int64_t c = 0; c < channels; ++c) sum[c] = rows > 0 ? sum[c] / static_cast<T>(rows) : T(0);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t c = 0; c < channels; ++c) {
      const T apart = static_cast<T>(x[row * channels + c]) - sum[c];
      squares[c] += apart * apart;
    }
  for (int64_t c = 0; c < channels; ++c) {
    out[c] = static_cast<double>(rows);
    out[channels + c] = sum[c];
    out[2 * channels + c] = squares[c];
  }
}

}  // namespace

at::Tensor column_moments(const at::Tensor& x) {
  const int64_t channels = x.size(1), size = 3 * channels;
  const at::Tensor rows = x.contiguous();
  std::vector<double> slices(std::max<int64_t>(1, (x.size(0) + kNormSlice - 1) / kNormSlice) * size);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::column_moments", [&] {
    const scalar_t* data = rows.const_data_ptr<scalar_t>();
    const int64_t count = for_each_slice(x.size(0), [&](int64_t begin, int64_t end, int64_t s) {
      slice_moments(data + begin * channels, end - begin, channels, slices.data() + s * size);
    });
    merge_as_tree(slices.data(), count, size,
                  [&](double* into, const double* from) { merge_moments(into, from, channels); });
  });
  at::Tensor moments = at::empty({3, channels}, x.options().dtype(at::kDouble));
  std::copy_n(slices.data(), size, moments.mutable_data_ptr<double>());
  return moments;
}

at::Tensor normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                     const at::Tensor& weight, const at::Tensor& bias) {
  const int64_t channels = x.size(1);
  const at::Tensor rows = x.contiguous();
  at::Tensor y = at::empty_like(rows);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize", [&] {
    using T = Compute<scalar_t>;
    const std::vector<T> centre = values_of<T>(mean), scale = values_of<T>(inverse_deviation * weight.to(at::kDouble)),
                         shift = values_of<T>(bias);
    const scalar_t* data = rows.const_data_ptr<scalar_t>();
    scalar_t* out = y.mutable_data_ptr<scalar_t>();
    for_each_slice(x.size(0), [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t c = 0; c < channels; ++c)
          out[row * channels + c] =
              static_cast<scalar_t>((static_cast<T>(data[row * channels + c]) - centre[c]) * scale[c] + shift[c]);
    });
  });
  return y;
}

at::Tensor normalize_sums(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                          const at::Tensor& inverse_deviation) {
  const int64_t channels = x.size(1), size = 2 * channels;
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  std::vector<double> slices(std::max<int64_t>(1, (x.size(0) + kNormSlice - 1) / kNormSlice) * size);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize_sums", [&] {
    using T = Compute<scalar_t>;
    const std::vector<T> centre = values_of<T>(mean), scale = values_of<T>(inverse_deviation);
    const scalar_t *data = rows.const_data_ptr<scalar_t>(), *grad = gradient.const_data_ptr<scalar_t>();
    const int64_t count = for_each_slice(x.size(0), [&](int64_t begin, int64_t end, int64_t s) {
      std::vector<T> sums(size, T(0));
      for (int64_t row = begin; row < end; ++row)
        for (int64_t c = 0; c < channels; ++c) {
          const T value = static_cast<T>(grad[row * channels + c]);
          sums[c] += value;
          sums[channels + c] += value * ((static_cast<T>(data[row * channels + c]) - centre[c]) * scale[c]);
        }
      std::copy(sums.begin(), sums.end(), slices.data() + s * size);
    });
    merge_as_tree(slices.data(), count, size, [&](double* into, const double* from) {
      for (int64_t i = 0; i < size; ++i) into[i] += from[i];
    });
  });
  at::Tensor sums = at::empty({2, channels}, x.options().dtype(at::kDouble));
  std::copy_n(slices.data(), size, sums.mutable_data_ptr<double>());
  return sums;
}

at::Tensor normalize_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& mean,
                              const at::Tensor& inverse_deviation, const at::Tensor& scale, const at::Tensor& means) {
  const int64_t channels = x.size(1);
  const at::Tensor rows = x.contiguous(), gradient = g.contiguous();
  at::Tensor dx = at::empty_like(rows);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "lockstep_sparse::normalize_gradient", [&] {
        using T = Compute<scalar_t>;
        const std::vector<T> centre = values_of<T>(mean), inverse = values_of<T>(inverse_deviation),
                             factor = values_of<T>(scale), part = values_of<T>(means);
        const scalar_t *data = rows.const_data_ptr<scalar_t>(), *grad = gradient.const_data_ptr<scalar_t>();
        scalar_t* out = dx.mutable_data_ptr<scalar_t>();
        for_each_slice(x.size(0), [&](int64_t begin, int64_t end, int64_t) {
          for (int64_t row = begin; row < end; ++row)
            for (int64_t c = 0; c < channels; ++c) {
              const int64_t at = row * channels + c;
              const T normal = (static_cast<T>(data[at]) - centre[c]) * inverse[c];
              out[at] =
                  static_cast<scalar_t>(factor[c] * (static_cast<T>(grad[at]) - part[c] - normal * part[channels + c]));
            }
        });
      });
  return dx;
}

}  // namespace lockstep::norm::cpu
