// SPDX-License-Identifier: Apache-2.0
// The one file that sees Gloo's headers.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include "comm/gloo/gloo.h"

#include <ATen/core/Tensor.h>
#include <ifaddrs.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <future>
#include <system_error>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/failure/culprit.h"
#include "lockstep/base/detail/first_line.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

using c10d::ProcessGroupGloo;

bool is_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) found |= name == entry->ifa_name;
  freeifaddrs(list);
  return found;
}

std::chrono::milliseconds left_until(Clock::time_point deadline) {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()),
                  std::chrono::milliseconds(1));
}

// Gloo writes to sockets without MSG_NOSIGNAL: a peer that dies at the wrong moment would end this process, silently,
// where an error should name that peer. While this lives, SIGPIPE is blocked in this thread and in those that it
// starts, as Gloo's are, for good; what has come of it here is dropped. Other threads of the program keep what they do
// with it.
class BrokenPipesBlocked {
 public:
  BrokenPipesBlocked() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BrokenPipesBlocked() {
    if (sigismember(&before_, SIGPIPE)) return;
    constexpr timespec no_wait{};
    while (sigtimedwait(&pipe_, nullptr, &no_wait) == SIGPIPE) {
    }
    pthread_sigmask(SIG_UNBLOCK, &pipe_, nullptr);
  }
  BrokenPipesBlocked(const BrokenPipesBlocked&) = delete;
  BrokenPipesBlocked& operator=(const BrokenPipesBlocked&) = delete;

 private:
  sigset_t pipe_, before_;
};

// Threads that this thread starts while it lives push no other one off its core when they wake up. Gloo's poll a
// connection as long as another thread has its lock; pushed off, that one kept the lock, and waited for their core.
class StartsPatientThreads {
 public:
  StartsPatientThreads() : policy_(sched_getscheduler(0)) {
    if (policy_ == SCHED_OTHER) set(SCHED_BATCH);
  }
  ~StartsPatientThreads() {
    if (policy_ == SCHED_OTHER) set(SCHED_OTHER);
  }
  StartsPatientThreads(const StartsPatientThreads&) = delete;
  StartsPatientThreads& operator=(const StartsPatientThreads&) = delete;

 private:
  // Where that is forbidden all is slower, and right.
  static void set(int policy) {
    const sched_param none{};
    sched_setscheduler(0, policy, &none);
  }

  const int policy_;  // of this thread; who has chosen another one keeps it
};

// The work under way, so that close() can fail it from another thread.
class Register {
 public:
  void add(const c10::intrusive_ptr<c10d::Work>& work) {
    const Lock lock(mutex_);
    if (closed_) throw TransportFailure(-1, "the connection is closed");
    works_.push_back(work);
  }
  void remove(const std::vector<c10::intrusive_ptr<c10d::Work>>& works) {
    const Lock lock(mutex_);
    for (const auto& work : works) std::erase(works_, work);
  }
  void close() {
    const Lock lock(mutex_);
    closed_ = true;
    for (const auto& work : works_) work->abort();
  }
  bool closed() const {
    const Lock lock(mutex_);
    return closed_;
  }

 private:
  mutable Mutex mutex_;
  bool closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_ LOCKSTEP_GUARDED_BY(mutex_);
};

class GlooPending : public Pending {
 public:
  explicit GlooPending(std::shared_ptr<Register> open) : open_(std::move(open)) {}
  ~GlooPending() override {
    // Left over after a failure elsewhere: nothing may touch our buffers any more.
    for (size_t i = waited_; i < works_.size(); ++i) works_[i]->abort();
    open_->remove(works_);
  }

  void add(int peer, const c10::intrusive_ptr<c10d::Work>& work) {
    peers_.push_back(peer);
    works_.push_back(work);
    open_->add(work);
  }

  void wait(Clock::time_point deadline) override {
    for (; waited_ < works_.size(); ++waited_) {
      bool sent = false;
      try {
        sent = works_[waited_]->wait(left_until(deadline));
      } catch (const std::exception& error) {
        throw TransportFailure(peers_[waited_], first_line(error.what()));
      }
      if (!sent) throw TransportFailure(peers_[waited_], "the operation was aborted");
    }
  }

 private:
  std::shared_ptr<Register> open_;
  std::vector<int> peers_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  size_t waited_ = 0;
};

std::shared_ptr<Transport> connect_all(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       const std::string& address, std::chrono::milliseconds timeout,
                                       const FailureReports& reports);

// Closes process groups on threads of their own: Gloo takes 10 ms to close each peer's socket, one after another, and
// nobody has to wait for that but the end of the program.
class Closer {
 public:
  void close(c10::intrusive_ptr<ProcessGroupGloo> group) {
    const Lock lock(mutex_);
    std::erase_if(closing_,
                  [](const auto& one) { return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    try {
      closing_.push_back(std::async(std::launch::async, [group = std::move(group)]() mutable {
        const BrokenPipesBlocked blocked;
        group.reset();
      }));
    } catch (const std::system_error& error) {  // the task that could not begin has closed it
      log_info("gloo: ", error.what());
    }
  }

 private:
  Mutex mutex_;
  std::vector<std::future<void>> closing_ LOCKSTEP_GUARDED_BY(mutex_);
};

// How often ranks that are all there try to connect: Gloo's mesh sometimes fails to come up (a connection "closed by
// peer", seen on full machines).
constexpr int kAttempts = 3;

// How many times its time-out Gloo waits for another rank to connect. Nothing ends that wait sooner.
constexpr int kGlooPatience = 5;

class GlooTransport : public Transport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string address,
                std::chrono::milliseconds timeout, FailureReports reports)
      : store_(std::move(store)),
        rank_(rank),
        size_(size),
        address_(std::move(address)),
        timeout_(timeout),
        reports_(std::move(reports)) {
    const BrokenPipesBlocked blocked;
    const StartsPatientThreads patient;
    auto options = ProcessGroupGloo::Options::create(timeout / (kAttempts * kGlooPatience));
    options->threads = 1;  // only the ring runs on them
    options->devices.push_back(is_interface(address_) ? ProcessGroupGloo::createDeviceForInterface(address_)
                                                      : ProcessGroupGloo::createDeviceForHostname(address_));
    group_ = c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store_), rank, size,
                                                   std::move(options));
  }

  std::string name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                 uint32_t channel) override {
    const auto group = open_group();
    auto pending = std::make_unique<GlooPending>(open_);
    for (const auto& [peer, tensor] : receives) {
      std::vector<at::Tensor> tensors{tensor};
      pending->add(peer, attempt(peer, [&, p = peer] { return group->recv(tensors, p, static_cast<int>(channel)); }));
    }
    for (const auto& [peer, tensor] : sends) {
      std::vector<at::Tensor> tensors{tensor};
      pending->add(peer, attempt(peer, [&, p = peer] { return group->send(tensors, p, static_cast<int>(channel)); }));
    }
    return pending;
  }

  bool ring_all_reduce(const at::Tensor& flat, ReduceOp op, Clock::time_point deadline) override {
    // A bool is a byte that is 0 or 1: "or" is its maximum, "and" its minimum.
    std::vector<at::Tensor> tensors{flat.scalar_type() == at::kBool ? flat.view(at::kByte) : flat};
    c10d::AllreduceOptions options;
    options.timeout = left_until(deadline);
    const bool either = flat.scalar_type() == at::kBool && op == ReduceOp::sum;
    options.reduceOp = op == ReduceOp::min             ? c10d::ReduceOp::MIN
                       : op == ReduceOp::max || either ? c10d::ReduceOp::MAX
                                                       : c10d::ReduceOp::SUM;
    attempt(-1, [&] {
      const auto group = open_group();
      auto work = [&] {
        // c10d keeps a record of operations for the whole process, into which groups on several threads may not write
        // at the same time (seen as a crash in its FlightRecorder).
        static Mutex record;
        const Lock lock(record);
        return group->allreduce(tensors, options);
      }();
      work->wait(left_until(deadline));
      return work;
    });
    if (op == ReduceOp::mean) flat.div_(size_);
    return true;
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, int number) override {
    const int rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    const std::string name = text("split", number, "from", members[0]);
    const auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
    return connect_all(store, rank, static_cast<int>(members.size()), address_, timeout_,
                       reports_.of_subgroup(members, name));
  }

  int find_culprit(int suspect, std::chrono::milliseconds patience) noexcept override {
    return reports_.find_culprit(suspect, patience);
  }

  void close() noexcept override {
    open_->close();
    // Destroying the process group closes its sockets, which is how the peers notice; whoever still holds it has a
    // copy of the pointer and is about to fail.
    c10::intrusive_ptr<ProcessGroupGloo> group;
    {
      const Lock lock(mutex_);
      group.swap(group_);
    }
    static Closer closer;
    if (group) closer.close(std::move(group));
  }

 private:
  c10::intrusive_ptr<ProcessGroupGloo> open_group() {
    const Lock lock(mutex_);
    if (!group_) throw TransportFailure(-1, "the connection is closed");
    return group_;
  }

  template <class Start>
  static c10::intrusive_ptr<c10d::Work> attempt(int peer, const Start& start) {
    try {
      const BrokenPipesBlocked blocked;
      return start();
    } catch (const TransportFailure&) {
      throw;
    } catch (const std::exception& error) {
      throw TransportFailure(peer, first_line(error.what()));
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const std::string address_;
  const std::chrono::milliseconds timeout_;
  const FailureReports reports_;
  const std::shared_ptr<Register> open_ = std::make_shared<Register>();
  Mutex mutex_;
  c10::intrusive_ptr<ProcessGroupGloo> group_ LOCKSTEP_GUARDED_BY(mutex_);
};

// Until all have come to what has this name in the store.
void meet(c10d::Store& store, const std::string& name, int size, Clock::time_point deadline) {
  const std::string all = "all " + name;
  if (store.add(name, 1) == size) store.set(all, std::vector<uint8_t>{1});
  store.wait({all}, std::max(left_until(deadline), std::chrono::milliseconds(100)));
}

// Nobody begins before all are there: Gloo would wait for the keys of those who have not come, and for connections of
// those who are lost meanwhile, without a way to end it.
void wait_for_all(c10d::Store& store, int rank, int size, Clock::time_point deadline) {
  const auto key_of = [](int member) { return text("here/", member); };
  try {
    store.set(key_of(rank), std::vector<uint8_t>{1});
    meet(store, "here", size, deadline);
  } catch (const std::exception& error) {
    std::string missing;
    try {
      for (int member = 0; member < size; ++member)
        if (!store.check({key_of(member)})) missing += text(missing.empty() ? ": not rank " : ", ", member);
    } catch (const std::exception&) {
      missing = ", and the store is gone";
    }
    throw TransportFailure(-1,
                           text("not all ", size, " ranks have come", missing, " (", first_line(error.what()), ")"));
  }
}

// All ranks try anew, or none does.
std::shared_ptr<Transport> connect_all(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       const std::string& address, std::chrono::milliseconds timeout,
                                       const FailureReports& reports) {
  const auto deadline = Clock::now() + timeout;
  wait_for_all(*store, rank, size, deadline);
  std::string why;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto round = c10::make_intrusive<c10d::PrefixStore>(text("mesh", attempt), store);
    std::shared_ptr<GlooTransport> made;
    try {
      made = std::make_shared<GlooTransport>(round, rank, size, address, timeout, reports);
    } catch (const std::exception& error) {
      why = first_line(error.what());
    }
    try {
      if (!made) round->add("failed", 1);
      meet(*round, "tried", size, deadline);
      if (round->add("failed", 0) == 0) return made;
      if (made) why = "another rank did not";
    } catch (const std::exception& error) {
      if (made) why = text("not all have come: ", first_line(error.what()));
      break;
    }
  }
  throw TransportFailure(
      -1, text("rank ", rank, " of ", size, " found no way to all others from ", address, " (", why, ")"));
}

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               const std::string& address, std::chrono::milliseconds timeout) {
  return connect_all(store, rank, size, address, timeout, FailureReports(store, rank, size));
}

bool has_gloo() {
  return true;
}

}  // namespace lockstep::comm
