// SPDX-License-Identifier: Apache-2.0
// The one file that sees NCCL.
#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL
#endif
#include "comm/nccl/nccl.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/backend.h"
#include "comm/failure/bounded.h"
#include "comm/failure/culprit.h"
#include "comm/failure/peer_watch.h"
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

// How often who waits looks whether it is of any use.
constexpr std::chrono::milliseconds kLook{200};
// How long closing, or a question to the store, may take before it is left to itself.
constexpr std::chrono::milliseconds kPatience{1000};

/// What those who wait must know of the connection that they wait on. It outlives the transport where they do.
struct Connection {
  c10::intrusive_ptr<c10d::Store> store;  // this connection's own
  std::shared_ptr<const PeerWatch> watch;
  std::atomic<bool> closed{false};
  std::atomic<bool> store_hangs{false};

  /// Throws where there is nothing to wait for any more.
  void look(int peer) {
    if (closed) throw TransportFailure(peer, "the connection was closed");
    if (const auto lost = watch->lost()) throw TransportFailure(peer, text("process ", *lost, " of the job is gone"));
    if (store_hangs) return;
    const auto failed = within(kPatience, [asked = store] { return announced_failure(*asked).has_value(); });
    store_hangs = !failed.has_value();
    if (failed.value_or(false)) throw TransportFailure(peer, "another rank has failed");
  }
};

class NcclPending : public Pending {
 public:
  NcclPending(std::shared_ptr<Connection> connection, int peer, c10::intrusive_ptr<c10d::Work> work)
      : connection_(std::move(connection)), peer_(peer), work_(std::move(work)) {}
  // c10d's own wait with a timeout looks once in many milliseconds, and counts from when the work was made.
  void wait(Clock::time_point deadline) override {
    if (!work_) return;
    auto next_look = Clock::now() + kLook;
    while (!work_->isCompleted()) {
      const auto now = Clock::now();
      if (now >= deadline) throw TransportFailure(peer_, "no answer in time");
      if (now >= next_look) {
        attempt(peer_, [&] { connection_->look(peer_); });
        next_look = now + kLook;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
    // c10d takes an operation that was aborted for one that has ended well, with whatever is in its output.
    if (connection_->closed) throw TransportFailure(peer_, "the connection was closed");
    attempt(peer_, [&] {
      if (const auto error = work_->exception()) std::rethrow_exception(error);
      return work_->wait();  // done, so that this only orders the current stream after it
    });
  }
  // c10d's wait without a timeout blocks nobody, unless TORCH_NCCL_BLOCKING_WAIT asks for that.
  bool order(Clock::time_point /*deadline*/) override {
    if (work_) attempt(peer_, [&] { return work_->wait(); });
    return !work_;
  }

 private:
  std::shared_ptr<Connection> connection_;
  int peer_;
  c10::intrusive_ptr<c10d::Work> work_;
};

class NcclTransport : public Transport {
 public:
  /// `watch`: of the whole job; null where these ranks are the whole job.
  NcclTransport(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<const PeerWatch> watch, int rank, int size,
                int device, std::chrono::milliseconds timeout, FailureReports reports)
      : store_(std::move(store)),
        rank_(rank),
        size_(size),
        device_(device),
        timeout_(timeout),
        reports_(std::move(reports)) {
    if (!watch) watch = std::make_shared<PeerWatch>(store_, rank, size, PeerWatch::Times{});
    connection_->store = store_;
    connection_->watch = std::move(watch);
    collectives_.group = connect("nccl");
    messages_.group = connect("nccl messages");
  }

  std::string name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  at::Device device() const override { return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_)); }

  // NCCL runs the messages of a round as one launch, so their order does not matter.
  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    Communicator& communicator = channel % 2 == 0 ? collectives_ : messages_;
    const Lock one_round(communicator.round);
    const auto group = open_group(communicator);
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
    return std::make_unique<NcclPending>(connection_, peer, std::move(work));
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
      const Lock one_round(collectives_.round);
      return open_group(collectives_)->allreduce(tensors, options);
    };
    NcclPending(connection_, -1, attempt(-1, start)).wait(deadline);
    if (op == ReduceOp::mean) flat.div_(size_);
    return true;
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, int number) override {
    const int rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    const std::string name = text("split", number, "from", members[0]);
    const auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
    return std::make_shared<NcclTransport>(store, connection_->watch, rank, static_cast<int>(members.size()), device_,
                                           timeout_, reports_.of_subgroup(members, name));
  }

  int find_culprit(int suspect, std::chrono::milliseconds patience) noexcept override {
    return reports_.find_culprit(suspect, patience);
  }

  // The peers are told, since they would not notice; aborting may hang with one of them.
  void close() noexcept override {
    end([rank = rank_](c10d::Store& store, ProcessGroupNCCL& group) {
      announce_failure(store, rank);
      group.abort();
    });
  }

  void leave() noexcept override {
    if (auto ended = end([](c10d::Store&, ProcessGroupNCCL& group) { group.shutdown(); }); ended.valid())
      ended.wait_for(kPatience);
  }

 private:
  using GroupPtr = c10::intrusive_ptr<ProcessGroupNCCL>;
  // NCCL has no tags: between two ranks it matches in the order of launches. Messages are launched by whoever posts
  // them, collectives by the executor; what is launched by two threads has a communicator each.
  struct Communicator {
    Mutex round;  // what a round has gathered so far is kept in the group, for one thread
    GroupPtr group;
  };

  // All members connect at once: a first message between two of them would wait for the others to join it. NCCL waits
  // for them without a bound.
  GroupPtr connect(const char* prefix) const {
    const auto start = [store = c10::make_intrusive<c10d::PrefixStore>(prefix, store_), rank = rank_, size = size_,
                        device = device()] {
      const c10::cuda::CUDAGuard guard(device);
      auto options = ProcessGroupNCCL::Options::create();
      options->timeout = kLongestWait;  // deadlines are kept here
      auto group = c10::make_intrusive<ProcessGroupNCCL>(store, rank, size, std::move(options));
      group->setBoundDeviceId(device);
      group->eagerConnectSingleDevice(device);
      return group;
    };
    auto group = attempt(-1, [&] { return within(timeout_, start); });
    if (!group) throw TransportFailure(-1, text("NCCL did not connect within ", timeout_.count() / 1000.0, " s"));
    return *group;
  }

  // On a thread of its own: the groups are gone from here at once, whatever becomes of them.
  template <class End>
  std::future<void> end(End end_group) noexcept {
    try {
      GroupPtr groups[2];
      {
        const Lock lock(mutex_);
        groups[0].swap(collectives_.group);
        groups[1].swap(messages_.group);
      }
      if (connection_->closed.exchange(true)) return {};
      std::packaged_task<void()> task(
          [end_group, store = store_, first = std::move(groups[0]), second = std::move(groups[1])] {
            for (const GroupPtr& group : {first, second}) try {
                if (group) end_group(*store, *group);
              } catch (...) {  // it is going away either way
              }
          });
      auto ended = task.get_future();
      std::thread(std::move(task)).detach();
      return ended;
    } catch (...) {  // no thread: the process's end closes them
      return {};
    }
  }

  const at::Tensor& on_device(const at::Tensor& tensor) const {
    if (!tensor.is_cuda() || tensor.get_device() != device_)
      fail("nccl", "got a tensor on ", tensor.device(), ", expected one on cuda:", device_);
    return tensor;
  }

  GroupPtr open_group(const Communicator& communicator) {
    const Lock lock(mutex_);
    if (!communicator.group) throw TransportFailure(-1, "the connection is closed");
    return communicator.group;
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const int device_;
  const std::chrono::milliseconds timeout_;
  const FailureReports reports_;
  const std::shared_ptr<Connection> connection_ = std::make_shared<Connection>();
  Mutex mutex_;  // of the communicators' groups
  Communicator collectives_, messages_;
};

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               int device, std::chrono::milliseconds timeout) {
  return std::make_shared<NcclTransport>(store, nullptr, rank, size, device, timeout,
                                         FailureReports(store, rank, size));
}

bool has_nccl() {
  return true;
}

}  // namespace lockstep::comm
