// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/kernel_region.h"

#include "lockstep/base/error.h"

namespace lockstep::sparse {
namespace {

void check_values(const char* name, const AxisValues& values, int64_t axes) {
  require(static_cast<int64_t>(values.size()) == axes && axes >= 1 && axes <= 8, "KernelRegion", name, " is ",
          to_string(values), ", expected one value for each of ", axes, " axes (1 to 8)");
  for (const int64_t value : values)
    require(value >= 1 && value < (int64_t{1} << 31), "KernelRegion", name, " is ", to_string(values),
            ", expected values from 1 to 2^31 - 1");
}

std::vector<int64_t> cube_offsets(const AxisValues& size) {
  AxisValues first, at;
  int64_t volume = 1;
  for (const int64_t k : size) {
    first.push_back(k % 2 == 1 ? -(k - 1) / 2 : 0);
    volume *= k;
  }
  std::vector<int64_t> offsets;
  offsets.reserve(volume * size.size());
  at = first;
  for (int64_t i = 0; i < volume; ++i) {
    offsets.insert(offsets.end(), at.begin(), at.end());
    for (size_t axis = 0; axis < size.size(); ++axis) {
      if (++at[axis] < first[axis] + size[axis]) break;
      at[axis] = first[axis];
    }
  }
  return offsets;
}

std::vector<int64_t> cross_offsets(const AxisValues& size) {
  std::vector<int64_t> offsets(size.size(), 0);
  for (size_t axis = 0; axis < size.size(); ++axis)
    for (int64_t step = 1; step <= (size[axis] - 1) / 2; ++step)
      for (const int64_t sign : {1, -1}) {
        offsets.resize(offsets.size() + size.size(), 0);
        offsets[offsets.size() - size.size() + axis] = sign * step;
      }
  return offsets;
}

}  // namespace

KernelRegion KernelRegion::hypercube(AxisValues size, AxisValues dilation) {
  const int64_t axes = static_cast<int64_t>(size.size());
  check_values("size", size, axes);
  check_values("dilation", dilation, axes);
  double volume = 1;
  for (const int64_t k : size) volume *= static_cast<double>(k);
  require(volume < 1 << 24, "KernelRegion", "size is ", sparse::to_string(size), ", expected fewer than 2^24 offsets");
  return {RegionType::hypercube, std::move(size), std::move(dilation), {}};
}

KernelRegion KernelRegion::hypercross(AxisValues size, AxisValues dilation) {
  const int64_t axes = static_cast<int64_t>(size.size());
  check_values("size", size, axes);
  check_values("dilation", dilation, axes);
  for (const int64_t k : size)
    require(k % 2 == 1 && k < 1 << 24, "KernelRegion", "size is ", sparse::to_string(size),
            ", expected odd sizes of a hypercross, below 2^24");
  return {RegionType::hypercross, std::move(size), std::move(dilation), {}};
}

KernelRegion KernelRegion::with_offsets(std::vector<int64_t> offsets, AxisValues dilation) {
  const int64_t axes = static_cast<int64_t>(dilation.size());
  check_values("dilation", dilation, axes);
  require(!offsets.empty() && offsets.size() % axes == 0, "KernelRegion", "there are ", offsets.size(),
          " offset values, expected ", axes, " for each offset, and one offset at least");
  for (const int64_t value : offsets)
    require(value < int64_t{1} << 31 && value > -(int64_t{1} << 31), "KernelRegion", "an offset is ", value,
            ", expected one within int32");
  return {RegionType::custom, {}, std::move(dilation), std::move(offsets)};
}

int64_t KernelRegion::volume() const {
  int64_t volume = 1;
  if (type == RegionType::custom) return static_cast<int64_t>(custom.size()) / dimension();
  for (const int64_t k : size) volume = type == RegionType::hypercube ? volume * k : volume + k - 1;
  return volume;
}

std::vector<int64_t> KernelRegion::offsets(const AxisValues& tensor_stride) const {
  require(static_cast<int64_t>(tensor_stride.size()) == dimension(), "KernelRegion", "tensor stride is ",
          sparse::to_string(tensor_stride), ", expected ", dimension(), " values");
  std::vector<int64_t> offsets = type == RegionType::hypercube    ? cube_offsets(size)
                                 : type == RegionType::hypercross ? cross_offsets(size)
                                                                  : custom;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const size_t axis = i % dilation.size();
    require(!__builtin_mul_overflow(offsets[i], dilation[axis], &offsets[i]) &&
                !__builtin_mul_overflow(offsets[i], tensor_stride[axis], &offsets[i]) &&
                offsets[i] <= int64_t{1} << 62 && offsets[i] >= -(int64_t{1} << 62),
            "KernelRegion", "an offset times dilation ", dilation[axis], " and tensor stride ", tensor_stride[axis],
            " leaves 2^62");
  }
  return offsets;
}

std::string KernelRegion::to_string() const {
  const std::string dilated = " dilation " + sparse::to_string(dilation);
  if (type == RegionType::custom) return "custom " + std::to_string(volume()) + " offsets" + dilated;
  return (type == RegionType::hypercube ? "hypercube " : "hypercross ") + sparse::to_string(size) + dilated;
}

}  // namespace lockstep::sparse
