// SPDX-License-Identifier: Apache-2.0
#include "comm/device.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/reduce.h"

namespace lockstep::comm {

void reduce_on(at::Device device, const TreeProgram& program, ReduceOp op, at::ScalarType dtype,
               std::span<const std::byte* const> sources, std::span<std::byte* const> destinations, int64_t count,
               int64_t divisor) {
  if (device.is_cuda())
    reduce_on_cuda(device.index(), program, op, dtype, sources, destinations, count, divisor);
  else
    reduce(program, op, dtype, sources, destinations, count, divisor);
}

void reduce_tensors(const TreeProgram& program, ReduceOp op, const TensorList& sources, const TensorList& destinations,
                    int64_t divisor) {
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (const auto& source : sources) from.push_back(static_cast<const std::byte*>(source.const_data_ptr()));
  for (const auto& destination : destinations) to.push_back(static_cast<std::byte*>(destination.mutable_data_ptr()));
  LOCKSTEP_ASSERT(!destinations.empty());
  const at::Tensor& like = destinations[0];
  reduce_on(like.device(), program, op, like.scalar_type(), from, to, like.numel(), divisor);
}

}  // namespace lockstep::comm
