// SPDX-License-Identifier: Apache-2.0
#include "comm/device.h"

#include "lockstep/core/error.h"

namespace lockstep::comm {

void reduce_tensors(const TreeProgram& program, ReduceOp op, const TensorList& sources, const TensorList& destinations,
                    int64_t divisor) {
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (const auto& source : sources) from.push_back(static_cast<const std::byte*>(source.const_data_ptr()));
  for (const auto& destination : destinations) to.push_back(static_cast<std::byte*>(destination.mutable_data_ptr()));
  LOCKSTEP_ASSERT(!destinations.empty());
  const at::Tensor& like = destinations[0];
  if (like.is_cuda())
    reduce_on_cuda(like.get_device(), program, op, like.scalar_type(), from, to, like.numel(), divisor);
  else
    reduce(program, op, like.scalar_type(), from, to, like.numel(), divisor);
}

}  // namespace lockstep::comm
