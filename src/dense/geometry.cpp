// SPDX-License-Identifier: Apache-2.0
#include "dense/geometry.h"

#include <ATen/ops/empty.h>

namespace lockstep::dense {

at::Tensor empty_image(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options().memory_format(at::MemoryFormat::ChannelsLast));
}

std::vector<int64_t> corners_of(const Geometry& geometry) {
  std::vector<int64_t> corners;
  corners.reserve(geometry.points());
  for (int64_t y = 0; y < geometry.out_height; ++y)
    for (int64_t x = 0; x < geometry.out_width; ++x) corners.push_back(geometry.corner(y, x));
  return corners;
}

}  // namespace lockstep::dense
