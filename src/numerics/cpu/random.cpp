// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/parallel_for.h"
#include "numerics/random_fill.h"

namespace lockstep::detail {

void fill_cpu(const at::Tensor& tensor, const Draw& any_draw, uint64_t offset) {
  constexpr int64_t grain = 16 * 1024;
  std::visit(
      [&](const auto& draw) {
        visit_dtype(draw, tensor.scalar_type(), [&]<class T>(T) {
          T* out = tensor.mutable_data_ptr<T>();
          parallel_for(0, tensor.numel(), grain,
                       [&](int64_t begin, int64_t end) { fill_range(out, begin, end, offset, draw); });
        });
      },
      any_draw);
}

}  // namespace lockstep::detail
