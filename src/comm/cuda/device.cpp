// SPDX-License-Identifier: Apache-2.0
#include "comm/device.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "comm/cuda/reduce.h"
#include "comm/cuda/stages.h"
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

struct SideStream::Guard {
  explicit Guard(c10::cuda::CUDAStream stream) : stream(stream) {}
  c10::cuda::CUDAStreamGuard stream;
};

SideStream::~SideStream() = default;

SideStream::SideStream(int device) {
  if (device < 0) return;
  // One for all threads: what is freed on it is used again by whoever comes next.
  static std::mutex mutex;
  static std::map<int, c10::cuda::CUDAStream> streams;
  const auto index = static_cast<c10::DeviceIndex>(device);
  const std::lock_guard lock(mutex);
  auto found = streams.find(device);
  if (found == streams.end())
    found = streams.emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/true, index)).first;
  guard_ = std::make_unique<Guard>(found->second);
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
  require(destinations.size() <= kCudaReduceMax && program.depth() <= kCudaReduceDepth, "comm", "got ", sources.size(),
          " sources and ", destinations.size(), " destinations on one host's GPUs, expected at most ", kCudaReduceMax,
          " destinations and 2^", kCudaReduceDepth - 1, " sources");
  TensorList carried;
  const auto stages = stages_of(program.merges(), kCudaReduceMax);
  for (const ReduceStage& stage : stages) {
    const bool last = &stage == &stages.back();
    CudaReduce job{};
    const auto add_source = [&](const void* source, uint8_t merges) {
      job.source[job.sources] = static_cast<const std::byte*>(source);
      job.merges[job.sources++] = merges;
    };
    for (const at::Tensor& value : carried) add_source(value.const_data_ptr(), 0);
    for (int64_t k = stage.first; k < stage.first + stage.count; ++k) add_source(sources[k], program.merges()[k]);
    const TensorList before = std::exchange(carried, {});
    if (last) {
      for (std::byte* destination : destinations) job.destination[job.destinations++] = destination;
    } else {
      const auto options = at::TensorOptions(dtype).device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
      for (int64_t d = 0; d < stage.left; ++d) {
        carried.push_back(at::empty({count}, options));
        job.destination[job.destinations++] = static_cast<std::byte*>(carried.back().mutable_data_ptr());
      }
    }
    job.one_result = last ? program.results().size() == 1 : stage.left == 1;
    job.count = count;
    job.divisor = last && op == ReduceOp::mean ? divisor : 1;
    job.op = op;
    launch_reduce(job, dtype, stream);
  }
}

}  // namespace lockstep::comm
