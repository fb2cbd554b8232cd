// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::models {

/// A group of motions that map the square grid of an image onto itself: c4 has the four turns by 90 degrees, d4 these
/// and their mirror images. Element a + 4 b mirrors left and right b times, then turns a quarter counter-clockwise a
/// times; element 0 does nothing.
enum class Symmetry : uint8_t { c4, d4 };

/// How many elements there are: 4 or 8.
int64_t order(Symmetry symmetry);
/// The element that does what `second` and then `first` do.
int64_t compose(int64_t first, int64_t second);
int64_t inverse(int64_t element);

/// The images [..., H, W] moved by an element; turned ones are [..., W, H]. A new tensor; differentiable. Throws Error
/// where there is no such element.
at::Tensor move(const at::Tensor& images, int64_t element);

/// What a movement of the image does to a feature map [N, G * C, H, W] of a group convolution, G = order(symmetry),
/// whose channel g * C + c is feature c at element g: moves each map, and the maps among each other.
at::Tensor move_features(const at::Tensor& features, Symmetry symmetry, int64_t element);

}  // namespace lockstep::models
