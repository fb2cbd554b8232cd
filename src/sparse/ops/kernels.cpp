// SPDX-License-Identifier: Apache-2.0
#include "sparse/ops/kernels.h"

#include "sparse/registration.h"

namespace lockstep::sparse {

// Each handle is looked up once.
#define CALL(name, ...)                                                \
  static const auto handle = operation<decltype(sparse::name)>(#name); \
  return handle.call(__VA_ARGS__)

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map, bool transposed,
                       int64_t groups) {
  CALL(convolution, x, weight, map, transposed, groups);
}
at::Tensor convolution_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map, int64_t groups) {
  CALL(convolution_weight, x, g, map, groups);
}
at::Tensor channelwise(const at::Tensor& x, const at::Tensor& weight, const KernelMapPtr& map) {
  CALL(channelwise, x, weight, map);
}
at::Tensor channelwise_weight(const at::Tensor& x, const at::Tensor& g, const KernelMapPtr& map) {
  CALL(channelwise_weight, x, g, map);
}
at::Tensor row_sum(const at::Tensor& x, const RowMapPtr& map, const MaybeTensor& weights) {
  CALL(row_sum, x, map, weights);
}
at::Tensor row_dot(const at::Tensor& g, const at::Tensor& x, const RowMapPtr& map) {
  CALL(row_dot, g, x, map);
}
at::Tensor row_pick(const at::Tensor& x, const RowMapPtr& map, const at::Tensor& chosen) {
  CALL(row_pick, x, map, chosen);
}
at::Tensor row_unpick(const at::Tensor& g, const RowMapPtr& map, const at::Tensor& chosen) {
  CALL(row_unpick, g, map, chosen);
}
at::Tensor row_argmax(const at::Tensor& x, const RowMapPtr& map) {
  CALL(row_argmax, x, map);
}
at::Tensor column_sum(const at::Tensor& x) {
  CALL(column_sum, x);
}

}  // namespace lockstep::sparse
