// SPDX-License-Identifier: Apache-2.0
#include "sparse/feature_checks.h"

#include <ATen/autocast_mode.h>

#include "lockstep/base/error.h"

namespace lockstep::sparse {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return text(c10::toString(tensor.scalar_type()), " ", tensor.sizes(), " on ", tensor.device().str());
}

void check_features(const char* operation, const at::Tensor& x, int64_t rows) {
  require(x.defined() && x.dim() == 2 && x.is_floating_point(), operation, "features are ", describe(x),
          ", expected floating values of shape [N, C]");
  require(x.size(0) == rows, operation, "features are ", describe(x), ", expected ", rows,
          " rows, one for each coordinate");
}

void check_same_kind(const char* operation, const char* name, const at::Tensor& tensor, const at::Tensor& x) {
  require(tensor.device() == x.device(), operation, name, " is ", describe(tensor), ", expected it on ",
          x.device().str(), " as the features are");
  // Autocast brings different types together.
  require(tensor.scalar_type() == x.scalar_type() || at::autocast::is_autocast_enabled(x.device().type()), operation,
          name, " is ", describe(tensor), ", expected ", c10::toString(x.scalar_type()), " as the features are");
}

}  // namespace lockstep::sparse
