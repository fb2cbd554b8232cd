// SPDX-License-Identifier: Apache-2.0
// The one file that sees MPI's header.
#include "comm/mpi/mpi.h"

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

// MPI counts in int: longer messages go as several.
constexpr int64_t kLongestMessage = int64_t{1} << 30;

void check(int code, int peer, const char* call) {
  if (code == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, message, &length);
  throw TransportFailure(peer, text(call, ": ", std::string(message, length)));
}

// MPI can be started once a process, and is.
class Runtime {
 public:
  static Runtime& get() {
    static Runtime runtime;
    return runtime;
  }
  std::atomic<bool> broken{false};

 private:
  Runtime() {
    int started = 0, level = 0;
    MPI_Initialized(&started);
    if (started == 0) {
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
      ours_ = true;
    }
    MPI_Query_thread(&level);
    require(level == MPI_THREAD_MULTIPLE, "mpi", "MPI was started with thread level ", level,
            ", expected MPI_THREAD_MULTIPLE (", MPI_THREAD_MULTIPLE, ")");
  }
  ~Runtime() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (ours_ && finalized == 0 && !broken) MPI_Finalize();
  }
  bool ours_ = false;
};

// Asks until `requests` are done; sleeps between once that takes a while.
void finish(std::vector<MPI_Request>& requests, const std::vector<int>& peers, const std::atomic<bool>& closed,
            Clock::time_point deadline) {
  for (int round = 0;; ++round) {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), -1,
          "MPI_Testall");
    if (done != 0) return;
    const bool late = Clock::now() >= deadline;
    if (closed || late) {
      const auto open =
          std::find_if(requests.begin(), requests.end(), [](MPI_Request r) { return r != MPI_REQUEST_NULL; });
      throw TransportFailure(peers.empty() || open == requests.end() ? -1 : peers[open - requests.begin()],
                             late ? "timed out" : "the operation was aborted");
    }
    if (round < 1000)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// What an operation that was given up leaves behind: MPI may still write there, so it stays until the process ends.
void keep_for_ever(std::vector<at::Tensor> tensors) {
  new std::vector<at::Tensor>(std::move(tensors));
}

class MpiPending : public Pending {
 public:
  explicit MpiPending(std::shared_ptr<std::atomic<bool>> closed) : closed_(std::move(closed)) {}
  ~MpiPending() override {
    if (!done_ && !requests_.empty()) keep_for_ever(std::move(tensors_));
  }

  template <class Start>  // start(data, count, request)
  void add(const Message& message, const Start& start) {
    auto* data = static_cast<std::byte*>(message.tensor.mutable_data_ptr());
    const auto bytes = static_cast<int64_t>(message.tensor.nbytes());
    tensors_.push_back(message.tensor);
    for (int64_t at = 0; at < bytes; at += kLongestMessage) {
      requests_.push_back(MPI_REQUEST_NULL);
      peers_.push_back(message.peer);
      const int count = static_cast<int>(std::min(kLongestMessage, bytes - at));
      check(start(data + at, count, &requests_.back()), message.peer, "MPI_Isend or MPI_Irecv");
    }
  }

  void wait(Clock::time_point deadline) override {
    finish(requests_, peers_, *closed_, deadline);
    done_ = true;
  }

 private:
  std::shared_ptr<std::atomic<bool>> closed_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
  std::vector<at::Tensor> tensors_;
  bool done_ = false;
};

std::optional<MPI_Datatype> mpi_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kInt:
      return MPI_INT32_T;
    case at::kLong:
      return MPI_INT64_T;
    case at::kBool:
      return MPI_UINT8_T;
    default:
      return std::nullopt;
  }
}

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    int* bound = nullptr;
    int known = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&bound), &known);
    if (known != 0) highest_tag_ = static_cast<uint32_t>(*bound);
  }
  ~MpiTransport() override {
    // MPI_Comm_free waits for everybody; a communicator is small, so it is left to MPI_Finalize.
    if (*closed_ && abandoned_) Runtime::get().broken = true;
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    if (*closed_) throw TransportFailure(-1, "the connection is closed");
    require(channel <= highest_tag_, "mpi", "a message's tag is ", channel / 2, ", expected at most ", highest_tag_ / 2,
            ", as far as this MPI's go");
    const int tag = static_cast<int>(channel);
    auto pending = std::make_unique<MpiPending>(closed_);
    for (const auto& message : receives)
      pending->add(message, [&](void* data, int count, MPI_Request* request) {
        return MPI_Irecv(data, count, MPI_BYTE, message.peer, tag, comm_, request);
      });
    for (const auto& message : sends)
      pending->add(message, [&](void* data, int count, MPI_Request* request) {
        return MPI_Isend(data, count, MPI_BYTE, message.peer, tag, comm_, request);
      });
    return pending;
  }

  bool ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) override {
    const auto type = mpi_type(flat.scalar_type());
    if (!type) return false;
    const bool either = flat.scalar_type() == at::kBool && op == ReduceOp::sum;
    const MPI_Op mpi_op = op == ReduceOp::min ? MPI_MIN : op == ReduceOp::max || either ? MPI_MAX : MPI_SUM;
    auto* data = static_cast<std::byte*>(flat.mutable_data_ptr());
    const int64_t step = kLongestMessage / static_cast<int64_t>(flat.element_size());
    for (int64_t at = 0; at < flat.numel(); at += step) {
      std::vector<MPI_Request> request(1);
      check(MPI_Iallreduce(MPI_IN_PLACE, data + at * flat.element_size(),
                           static_cast<int>(std::min(step, flat.numel() - at)), *type, mpi_op, comm_, request.data()),
            -1, "MPI_Iallreduce");
      try {
        finish(request, {}, *closed_, deadline);
      } catch (...) {
        keep_for_ever({flat});
        throw;
      }
    }
    if (op == ReduceOp::mean) flat.div_(size_);
    return true;
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, int number) override {
    MPI_Group all, some;
    MPI_Comm comm;
    MPI_Comm_group(comm_, &all);
    MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    // Among the members alone; the tag keeps splits that run side by side apart.
    const int code = MPI_Comm_create_group(comm_, some, number % 32768, &comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    check(code, -1, "MPI_Comm_create_group");
    return std::make_shared<MpiTransport>(comm);
  }

  int find_culprit(int suspect, std::chrono::milliseconds) noexcept override {
    abandoned_ = true;
    return suspect;
  }

  void close() noexcept override { *closed_ = true; }

 private:
  const MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  uint32_t highest_tag_ = 32767;  // what the standard promises
  std::atomic<bool> abandoned_{false};
  const std::shared_ptr<std::atomic<bool>> closed_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

std::shared_ptr<Transport> make_mpi_transport() {
  Runtime::get();
  MPI_Comm comm;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), -1, "MPI_Comm_dup");
  return std::make_shared<MpiTransport>(comm);
}

bool has_mpi() {
  return true;
}

const char* mpi_launcher() {
#ifdef OPEN_MPI
  return "openmpi";
#else
  return "mpich";
#endif
}

}  // namespace lockstep::comm
