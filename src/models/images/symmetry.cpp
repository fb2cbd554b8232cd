// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/images/symmetry.h"

#include <ATen/ops/flip.h>
#include <ATen/ops/rot90.h>
#include <ATen/ops/stack.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

int64_t turns(int64_t element) {
  return element % 4;
}
bool mirrors(int64_t element) {
  return element >= 4;
}

}  // namespace

int64_t order(Symmetry symmetry) {
  return symmetry == Symmetry::c4 ? 4 : 8;
}

// A turn seen in a mirror is a turn the other way: m r = r^-1 m.
int64_t compose(int64_t first, int64_t second) {
  const int64_t turned = turns(first) + (mirrors(first) ? 4 - turns(second) : turns(second));
  return turned % 4 + (mirrors(first) != mirrors(second) ? 4 : 0);
}

int64_t inverse(int64_t element) {
  return mirrors(element) ? element : (4 - element) % 4;
}

at::Tensor move(const at::Tensor& images, int64_t element) {
  require(element >= 0 && element < 8, "move", "the element is ", element, ", expected 0 to 7");
  require(images.dim() >= 2, "move", "images are ", images.sizes(), ", expected [..., H, W]");
  return at::rot90(mirrors(element) ? at::flip(images, {-1}) : images, turns(element), {-2, -1});
}

at::Tensor move_features(const at::Tensor& features, Symmetry symmetry, int64_t element) {
  const int64_t elements = order(symmetry);
  require(features.dim() == 4 && features.size(1) % elements == 0, "move_features", "features are ", features.sizes(),
          ", expected [N, ", elements, " * C, H, W]");
  require(element >= 0 && element < elements, "move_features", "the element is ", element, ", expected 0 to ",
          elements - 1);
  const auto maps = features.unflatten(1, {elements, features.size(1) / elements});
  std::vector<at::Tensor> moved;
  for (int64_t g = 0; g < elements; ++g) moved.push_back(move(maps.select(1, compose(inverse(element), g)), element));
  return at::stack(moved, 1).flatten(1, 2);
}

}  // namespace lockstep::models
