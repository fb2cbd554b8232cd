// SPDX-License-Identifier: Apache-2.0
#include "comm/device.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "comm/cuda/reduce.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

struct StreamOrder::Mark {
  at::cuda::CUDAEvent event;
};

StreamOrder StreamOrder::after_current(const Call& call) {
  StreamOrder order;
  for (const auto* tensors : {&call.inputs, &call.outputs})
    for (const auto& tensor : *tensors) {
      const int device = tensor.is_cuda() ? tensor.get_device() : -1;
      require(order.device_ < 0 || device == order.device_, name_of(call.kind), "got a tensor on ", tensor.device(),
              ", expected all of them on one device");
      order.device_ = device;
    }
  if (order.device_ >= 0) {
    order.mark_ = std::make_shared<Mark>();
    order.mark_->event.record(at::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(order.device_)));
  }
  return order;
}

void StreamOrder::enter(int device) const {
  if (mark_) mark_->event.block(at::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)));
}

void StreamOrder::leave(int device) {
  if (device >= 0) at::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).synchronize();
}

namespace {

// Lets kernels on `device` reach memory of another GPU of this host.
void allow_access(int device, const std::byte* memory) {
  cudaPointerAttributes attributes{};
  C10_CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory));
  if (attributes.type != cudaMemoryTypeDevice || attributes.device == device) return;
  require(
      at::cuda::get_p2p_access(static_cast<c10::DeviceIndex>(device), static_cast<c10::DeviceIndex>(attributes.device)),
      "comm", "cuda:", device, " cannot read the memory of cuda:", attributes.device,
      ", expected GPUs with peer access; use the nccl backend between these");
}

}  // namespace

void reduce_on_cuda(int device, const TreeProgram& program, ReduceOp op, at::ScalarType dtype,
                    std::span<const std::byte* const> sources, std::span<std::byte* const> destinations, int64_t count,
                    int64_t divisor) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  const auto stream = at::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
  if (sources.size() == 1 && dtype == at::kByte) {
    for (std::byte* to : destinations)
      if (to != sources[0]) C10_CUDA_CHECK(cudaMemcpyAsync(to, sources[0], count, cudaMemcpyDefault, stream));
    return;
  }
  for (const std::byte* source : sources) allow_access(device, source);
  for (const std::byte* destination : destinations) allow_access(device, destination);
  require(
      sources.size() <= kCudaReduceMax && destinations.size() <= kCudaReduceMax && program.depth() <= kCudaReduceDepth,
      "comm", "got ", sources.size(), " sources on one host's GPUs, expected at most ", kCudaReduceMax);
  CudaReduce job{};
  for (size_t k = 0; k < sources.size(); ++k) {
    job.source[k] = sources[k];
    job.merges[k] = program.merges()[k];
  }
  for (size_t d = 0; d < destinations.size(); ++d) job.destination[d] = destinations[d];
  job.sources = static_cast<int>(sources.size());
  job.destinations = static_cast<int>(destinations.size());
  job.one_result = program.results().size() == 1;
  job.count = count;
  job.divisor = op == ReduceOp::mean ? divisor : 1;
  job.op = op;
  launch_reduce(job, dtype, stream);
}

}  // namespace lockstep::comm
