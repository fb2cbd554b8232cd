// SPDX-License-Identifier: Apache-2.0
// The one file that sees NCCL.
#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL
#endif
#include "comm/nccl/nccl.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/backend.h"
#include "comm/transport/culprit.h"
#include "lockstep/base/detail/first_line.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using c10d::ProcessGroupNCCL;

template <class Start>
auto attempt(int peer, const Start& start) {
  try {
    return start();
  } catch (const std::exception& error) {
    throw TransportFailure(peer, first_line(error.what()));
  }
}

class NcclPending : public Pending {
 public:
  NcclPending(int peer, c10::intrusive_ptr<c10d::Work> work) : peer_(peer), work_(std::move(work)) {}
  // c10d's own wait with a timeout looks once in many milliseconds, and counts from when the work was made.
  void wait(Clock::time_point deadline) override {
    if (!work_) return;
    while (!work_->isCompleted()) {
      if (Clock::now() >= deadline) throw TransportFailure(peer_, "no answer in time");
      std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
    attempt(peer_, [&] {
      if (const auto error = work_->exception()) std::rethrow_exception(error);
      return work_->wait();  // done, so that this only orders the current stream after it
    });
  }

 private:
  int peer_;
  c10::intrusive_ptr<c10d::Work> work_;
};

class NcclTransport : public Transport {
 public:
  NcclTransport(c10::intrusive_ptr<c10d::Store> store, int rank, int size, int device,
                std::chrono::milliseconds timeout)
      : store_(std::move(store)), rank_(rank), size_(size), device_(device), timeout_(timeout) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    collectives_ = connect("nccl");
    messages_ = connect("nccl messages");
  }

  std::string name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  at::Device device() const override { return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_)); }

  // NCCL runs the messages of a round as one launch, so their order does not matter.
  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    const Lock one_round(round_);
    const auto group = open_group(channel % 2 == 0 ? &NcclTransport::collectives_ : &NcclTransport::messages_);
    const int peer = !receives.empty() ? receives[0].peer : !sends.empty() ? sends[0].peer : -1;
    auto work = attempt(peer, [&] {
      group->startCoalescing();
      for (const auto& [from, tensor] : receives) {
        std::vector<at::Tensor> tensors{on_device(tensor)};
        group->recv(tensors, from, 0);
      }
      for (const auto& [to, tensor] : sends) {
        std::vector<at::Tensor> tensors{on_device(tensor)};
        group->send(tensors, to, 0);
      }
      return group->endCoalescing();
    });
    return std::make_unique<NcclPending>(peer, std::move(work));
  }

  bool ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) override {
    std::vector<at::Tensor> tensors{on_device(flat)};
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    c10d::AllreduceOptions options;
    const bool either = flat.scalar_type() == at::kBool && op == ReduceOp::sum;
    options.reduceOp = op == ReduceOp::min             ? c10d::ReduceOp::MIN
                       : op == ReduceOp::max || either ? c10d::ReduceOp::MAX
                                                       : c10d::ReduceOp::SUM;
    const auto start = [&] {
      const Lock one_round(round_);
      return open_group(&NcclTransport::collectives_)->allreduce(tensors, options);
    };
    NcclPending(-1, attempt(-1, start)).wait(deadline);
    if (op == ReduceOp::mean) flat.div_(size_);
    return true;
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, int number) override {
    const int rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    // A connection of its own to the store: who waits for a key on one keeps it from all other threads.
    const auto store =
        c10::make_intrusive<c10d::PrefixStore>(text("split", number, "from", members[0]), store_->clone());
    return std::make_shared<NcclTransport>(store, rank, static_cast<int>(members.size()), device_, timeout_);
  }

  int find_culprit(int suspect, std::chrono::milliseconds patience) noexcept override {
    return culprit_of_failure(store_, rank_, size_, suspect, patience);
  }

  void close() noexcept override {
    GroupPtr groups[2];
    {
      const Lock lock(mutex_);
      groups[0].swap(collectives_);
      groups[1].swap(messages_);
    }
    for (const GroupPtr& group : groups) try {
        if (group) group->abort();
      } catch (...) {  // it is going away either way
      }
  }

 private:
  using GroupPtr = c10::intrusive_ptr<ProcessGroupNCCL>;

  // All members connect at once: a first message between two of them would wait for the others to join it.
  GroupPtr connect(const char* prefix) const {
    auto options = ProcessGroupNCCL::Options::create();
    options->timeout = kLongestWait;  // deadlines are kept here
    auto group = c10::make_intrusive<ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>(prefix, store_), rank_,
                                                       size_, std::move(options));
    group->setBoundDeviceId(device());
    group->eagerConnectSingleDevice(device());
    return group;
  }

  const at::Tensor& on_device(const at::Tensor& tensor) const {
    if (!tensor.is_cuda() || tensor.get_device() != device_)
      fail("nccl", "got a tensor on ", tensor.device(), ", expected one on cuda:", device_);
    return tensor;
  }

  GroupPtr open_group(GroupPtr NcclTransport::*which) {
    const Lock lock(mutex_);
    const GroupPtr& group = this->*which;
    if (!group) throw TransportFailure(-1, "the connection is closed");
    return group;
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const int device_;
  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  // NCCL has no tags: between two ranks it matches in the order of launches. Messages are launched by whoever posts
  // them, collectives by the executor; what is launched by two threads has a communicator each.
  GroupPtr collectives_ LOCKSTEP_GUARDED_BY(mutex_), messages_ LOCKSTEP_GUARDED_BY(mutex_);
  Mutex round_;  // what a round has gathered so far is kept in the group, for one thread
};

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               int local_rank, std::chrono::milliseconds timeout) {
  require(local_rank < visible_gpus(), "nccl", "local rank ", local_rank, " with ", visible_gpus(),
          " visible GPUs, expected a GPU for each process of this host");
  return std::make_shared<NcclTransport>(store, rank, size, local_rank, timeout);
}

bool has_nccl() {
  return true;
}
int visible_gpus() {
  return static_cast<int>(c10::cuda::device_count());
}

}  // namespace lockstep::comm
