// SPDX-License-Identifier: Apache-2.0
#include "comm/device.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

struct StreamOrder::Mark {};

void reduce_on_cuda(int, const TreeProgram&, ReduceOp, at::ScalarType, std::span<const std::byte* const>,
                    std::span<std::byte* const>, int64_t, int64_t) {
  fail("comm", "got CUDA tensors, but this build has no CUDA; expected CPU tensors or a build with a CUDA toolkit");
}

StreamOrder StreamOrder::after_current(const Call& call) {
  for (const auto* tensors : {&call.inputs, &call.outputs})
    for (const auto& tensor : *tensors)
      require(tensor.is_cpu(), name_of(call.kind), "got a tensor on ", tensor.device(),
              ", but this build has no CUDA; expected CPU tensors");
  return {};
}

void StreamOrder::enter(int) const {}
void StreamOrder::leave(int) {}

struct SideStream::Guard {};
SideStream::SideStream(int) {}
SideStream::~SideStream() = default;

}  // namespace lockstep::comm
