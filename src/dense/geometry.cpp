// SPDX-License-Identifier: Apache-2.0
#include "dense/geometry.h"

#include <ATen/ops/empty.h>

namespace lockstep::dense {

at::Tensor empty_image(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options().memory_format(at::MemoryFormat::ChannelsLast));
}

Geometry windows_on(int64_t images, int64_t height, int64_t width, std::array<int64_t, 2> window,
                    std::array<int64_t, 2> stride) {
  return {.images = images,
          .height = height,
          .width = width,
          .channels = 1,
          .filters = 1,
          .kernel_height = window[0],
          .kernel_width = window[1],
          .stride_height = stride[0],
          .stride_width = stride[1],
          .pad_height = 0,
          .pad_width = 0,
          .out_height = (height - window[0]) / stride[0] + 1,
          .out_width = (width - window[1]) / stride[1] + 1};
}

std::vector<int64_t> corners_of(const Geometry& geometry) {
  std::vector<int64_t> corners;
  corners.reserve(geometry.points());
  for (int64_t y = 0; y < geometry.out_height; ++y)
    for (int64_t x = 0; x < geometry.out_width; ++x) corners.push_back(geometry.corner(y, x));
  return corners;
}

}  // namespace lockstep::dense
