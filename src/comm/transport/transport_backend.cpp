// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/transport_backend.h"

#include <algorithm>
#include <cstdlib>

#include "comm/device.h"
#include "comm/transport/algorithms.h"
#include "comm/transport/counting.h"
#include "comm/transport/executor.h"
#include "comm/transport/staging.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

bool debug_mode() {
  const char* text = std::getenv("LOCKSTEP_DEBUG");
  return text != nullptr && *text != '\0' && *text != '0';
}

// What a rank keeps back of an operation's timeout to find out, together with the others, who did not come.
std::chrono::milliseconds patience(std::chrono::milliseconds timeout) {
  return std::min(timeout / 4, std::chrono::milliseconds(1000));
}

class TransportBackend : public Backend {
 public:
  TransportBackend(std::shared_ptr<Transport> transport, std::chrono::milliseconds timeout, bool asks_around)
      : transport_(std::make_shared<CountingTransport>(std::move(transport))),
        timeout_(timeout),
        asks_around_(asks_around),
        debug_(debug_mode()) {}

  ~TransportBackend() override {
    if (broken().empty() && collectives_.idle() && messages_.idle())
      transport_->leave();
    else
      transport_->close();
  }

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string name() const override { return transport_->name(); }
  at::Device device() const override { return transport_->device(); }
  std::chrono::milliseconds timeout() const override { return timeout_; }
  bool may_lose_members() const override { return !asks_around_; }
  int64_t bytes_sent() const override { return transport_->bytes_sent(); }

  std::shared_ptr<WorkState> post(Call call) override {
    const auto start = Clock::now();
    const auto deadline = start + call.timeout;
    if (call.kind == Kind::send || call.kind == Kind::recv) return post_message(call, start);
    const auto order = StreamOrder::after_current(call);
    return collectives_.post(
        [this, start, order, call = std::move(call)] {
          guarded(name_of(call.kind), call.timeout, start, [&](Clock::time_point until) {
            const SideStream own(order.device());
            order.enter(order.device());
            if (debug_ && size() > 1)
              if (const auto mismatch = compare_signatures(*transport_, call, until))
                throw CommError(mismatch->rank, name_of(call.kind), seconds_since(start), mismatch->message);
            run_collective(*transport_, call, until);
            StreamOrder::leave(order.device());
          });
        },
        deadline);
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members, int number) override {
    std::shared_ptr<Backend> made;
    guarded("split", timeout_, Clock::now(), [&](Clock::time_point) {
      made = make_transport_backend(transport_->subgroup(members, number), timeout_, asks_around_);
    });
    return made;
  }

  void abort(const std::string& reason) noexcept override { break_group(reason, -1); }

 private:
  // A message is under way as soon as it is posted; only waiting for it is a task.
  std::shared_ptr<WorkState> post_message(const Call& call, Clock::time_point start) {
    require(call.peer != rank(), name_of(call.kind), "the other rank is this rank ", rank(), ", expected another");
    require(0 <= call.tag && call.tag < 1 << 30, name_of(call.kind), "tag is ", call.tag, ", expected 0 to 2^30 - 1");
    const bool sends = call.kind == Kind::send;
    const int device = StreamOrder::after_current(call).device();
    const std::vector<Message> message{{call.peer, (sends ? call.inputs : call.outputs)[0].flatten()}};
    std::shared_ptr<Pending> pending;
    if (message[0].tensor.numel() > 0) {
      guarded(name_of(call.kind), call.timeout, start, [&](Clock::time_point) {
        const std::span<const Message> none;
        pending = transport_->start(sends ? message : none, sends ? none : message, 2 * call.tag + 1);
      });
    }
    return messages_.post(
        [this, start, call, pending, device] {
          guarded(name_of(call.kind), call.timeout, start, [&](Clock::time_point until) {
            const SideStream own(device);
            if (pending) pending->wait(until);
            StreamOrder::leave(device);
          });
        },
        start + call.timeout);
  }

  // Runs part of an operation; a failure breaks the group and comes out as a CommError that names who is to blame.
  void guarded(const char* what, std::chrono::milliseconds timeout, Clock::time_point start,
               const std::function<void(Clock::time_point)>& body) {
    check_whole(what, start);
    const auto spare = asks_around_ ? patience(timeout) : std::chrono::milliseconds(0);
    try {
      body(start + timeout - spare);
    } catch (const TransportFailure& failure) {
      check_whole(what, start);  // who has given the group up here suspects nobody
      const double seconds = seconds_since(start);
      transport_->close();  // at once, so that the peers fail too and can say so
      const int culprit = asks_around_ ? transport_->find_culprit(failure.peer, spare) : failure.peer;
      const std::string message = text(what, ": ", explain(culprit), " (after ", seconds, " s; ", failure.what(), ")");
      break_group(message, culprit);
      throw CommError(culprit, what, seconds_since(start), message);
    } catch (const std::exception& error) {  // a CommError, or a GPU that refuses: the peers must not wait for it
      const auto* failure = dynamic_cast<const CommError*>(&error);
      break_group(error.what(), failure == nullptr ? -1 : failure->rank());
      throw;
    }
  }

  // What comes after a failure names the same rank as the failure did.
  void check_whole(const char* what, Clock::time_point start) const {
    const Lock lock(mutex_);
    if (!broken_.empty()) throw CommError(culprit_, what, seconds_since(start), broken_message(what, broken_));
  }

  std::string explain(int culprit) const {
    if (const std::string reason = broken(); !reason.empty()) return text("the group was aborted: ", reason);
    if (culprit < 0) return "a peer failed";
    if (culprit == rank()) return "the others gave up waiting for this rank";
    return text("rank ", culprit, " died, stalled or did not come");
  }

  std::string broken() const {
    const Lock lock(mutex_);
    return broken_;
  }

  // Closing the transport lets the peers notice at once.
  void break_group(const std::string& reason, int culprit) noexcept {
    {
      const Lock lock(mutex_);
      if (broken_.empty()) {
        broken_ = reason.empty() ? "aborted" : reason;
        culprit_ = culprit;
      }
    }
    transport_->close();
  }

  const std::shared_ptr<CountingTransport> transport_;
  const std::chrono::milliseconds timeout_;
  const bool asks_around_;
  const bool debug_;
  mutable Mutex mutex_;
  std::string broken_ LOCKSTEP_GUARDED_BY(mutex_);  // why, once it is
  int culprit_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
  // Last, so that they are destroyed first, while what their tasks use is still there.
  Executor collectives_{Executor::Mode::in_order};
  Executor messages_{Executor::Mode::any_order};
};

}  // namespace

std::shared_ptr<Backend> make_transport_backend(std::shared_ptr<Transport> transport, std::chrono::milliseconds timeout,
                                                bool asks_around) {
  return std::make_shared<TransportBackend>(std::make_shared<StagingTransport>(std::move(transport)), timeout,
                                            asks_around);
}

}  // namespace lockstep::comm
