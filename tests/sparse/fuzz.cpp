// SPDX-License-Identifier: Apache-2.0
// libFuzzer on coordinates and convolutions: bytes become a table of coordinates, a layer and features. Whatever they
// are, the engine gives what the definition says, or an Error, and reads nothing outside (build it with sanitizers).
//
//     ./dev test --preset asan --label fuzz
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/sparse/operations.h"
#include "lockstep/sparse/tensor_field.h"
#include "support/clouds.h"

namespace {

using namespace lockstep::sparse;

/// Numbers out of bytes; zeros when they are used up.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  uint8_t byte() { return left_ == 0 ? 0 : (--left_, *data_++); }
  int64_t below(int64_t bound) { return byte() % bound; }
  int32_t word() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return static_cast<int32_t>(value);
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

at::Tensor coordinates_of(Bytes& bytes, int64_t axes) {
  const int64_t count = bytes.below(33);
  const bool wild = bytes.below(8) == 7;
  at::Tensor table = at::empty({count, axes + 1}, at::kInt);
  int32_t* out = table.mutable_data_ptr<int32_t>();
  for (int64_t row = 0; row < count; ++row) {
    *out++ = wild ? bytes.word() : static_cast<int32_t>(bytes.below(3));
    for (int64_t axis = 0; axis < axes; ++axis) *out++ = wild ? bytes.word() : static_cast<int32_t>(bytes.below(9)) - 4;
  }
  return table;
}

/// A layer for `rows` voxels whose kernel maps stay small enough to check by definition.
LayerGeometry layer_of(Bytes& bytes, int64_t axes, int64_t rows) {
  const int64_t large = std::min<int64_t>(100, 4096 / std::max<int64_t>(1, rows));
  AxisValues size, dilation, stride;
  int64_t volume = 1;
  for (int64_t axis = 0; axis < axes; ++axis) {
    size.push_back(bytes.below(32) == 31 ? 0 : volume > large ? 1 : 1 + bytes.below(4));  // 0 is an error
    volume *= std::max<int64_t>(1, size.back());
    dilation.push_back(1 + bytes.below(3));
    stride.push_back(bytes.below(32) == 31 ? bytes.word() : 1 + bytes.below(3));
  }
  LayerGeometry layer;
  layer.stride = stride;
  switch (bytes.below(3)) {
    case 0:
      layer.region = KernelRegion::hypercube(size, dilation);
      break;
    case 1:
      layer.region = KernelRegion::hypercross(size, dilation);
      break;
    default: {
      std::vector<int64_t> offsets;
      for (int64_t i = 0; i < axes * (1 + bytes.below(4)); ++i)
        offsets.push_back(bytes.below(32) == 31 ? bytes.word() : bytes.below(5) - 2);
      layer.region = KernelRegion::with_offsets(offsets, dilation);
    }
  }
  layer.transposed = bytes.below(4) == 0;
  layer.generative = layer.transposed && bytes.below(2) == 0;
  layer.expand_coordinates = !layer.transposed && bytes.below(4) == 0;
  return layer;
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the fuzzer found that %s does not hold\n", what);
  std::abort();
}

/// A convolution of one channel with weights 1, 2, 3, ... by its definition.
at::Tensor definition(const SparseTensor& x, const SparseTensor& y, const LayerGeometry& layer) {
  const auto rows = test::rows_of(x.coordinates());
  const auto outputs = test::to_points(y.coordinates());
  const int64_t axes = x.dimension();
  const auto offsets = layer.region.offsets(layer.transposed ? y.tensor_stride() : x.tensor_stride());
  at::Tensor sums = at::zeros({y.size(), 1}, at::kDouble);
  const double* features = x.features().const_data_ptr<double>();
  double* sum = sums.mutable_data_ptr<double>();
  for (size_t row = 0; row < outputs.size(); ++row)
    for (int64_t k = 0; k < layer.region.volume(); ++k) {
      test::Point point = outputs[row];
      for (int64_t axis = 0; axis < axes; ++axis)
        point[axis + 1] += (layer.transposed ? -1 : 1) * offsets[k * axes + axis];
      const auto found = rows.find(point);
      if (found != rows.end()) sum[row] += features[found->second] * static_cast<double>(k + 1);
    }
  return sums;
}

void run(Bytes bytes) {
  const int64_t axes = 1 + bytes.below(8);
  const at::Tensor coordinates = coordinates_of(bytes, axes);
  const at::Tensor features = at::arange(coordinates.size(0), at::kDouble).unsqueeze(1).add_(1).requires_grad_(true);
  const SparseTensor x(features, coordinates, {}, static_cast<Quantization>(bytes.below(5)));
  check(at::equal(x.coordinates().index_select(0, x.inverse_mapping()), coordinates), "inverse mapping");
  check(at::equal(coordinates.index_select(0, x.unique_index()), x.coordinates()), "unique index");

  SparseTensor y = x;
  for (int64_t layers = 1 + bytes.below(2); layers > 0; --layers) {
    const LayerGeometry layer = layer_of(bytes, axes, y.size());
    const int64_t volume = layer.region.volume();
    const at::Tensor kernel = at::arange(1, volume + 1, at::kDouble).reshape({volume, 1, 1}).requires_grad_(true);
    const SparseTensor z = convolution(y, kernel, {}, layer);
    check(at::allclose(z.features(), definition(y, z, layer)), "the definition of a convolution");
    check(pool(y, static_cast<Pooling>(bytes.below(3)), layer).key() == z.key(), "one map of outputs for one layer");
    y = z;
  }
  if (y.features().requires_grad()) y.features().sum().backward();
  check(unite({x, x}).size() == x.size(), "the union with itself");
  static_cast<void>(instance_norm(y, {}, {}));
  static_cast<void>(x.interpolate(coordinates.to(at::kDouble) + 0.25));
  static_cast<void>(TensorField(features, coordinates.to(at::kDouble)).splat());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  at::set_num_threads(1);
  try {
    run(Bytes(data, size));
  } catch (const lockstep::Error&) {
    // What bad input is to give.
  }
  return 0;
}
