// SPDX-License-Identifier: Apache-2.0
// The backend for threads of one process: what they share is a Hub, which pairs their calls up into Exchanges.
#include <map>

#include "comm/backend.h"
#include "comm/local/exchange.h"
#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"

namespace lockstep::comm::local {
namespace {

// Collectives pair up by their number, messages by sender, receiver, tag and number.
struct Key {
  int from = -1;
  int to = -1;
  int tag = 0;
  int64_t number = 0;
  auto operator<=>(const Key&) const = default;
};

class Hub {
 public:
  explicit Hub(int size) : size_(size), gone_(size, false) {}

  int size() const { return size_; }

  std::shared_ptr<Exchange> post(int rank, const Key& key, Call call) {
    auto order = StreamOrder::after_current(call);
    Lock lock(mutex_);
    auto& slot = open_[key];
    if (!slot) slot = std::make_shared<Exchange>(participants(key), spin_policy_);
    const auto exchange = slot;
    const bool last = exchange->arrive(rank, std::move(call), std::move(order));
    if (failure_) {
      exchange->fail(*failure_);
    } else {
      for (int r = 0; r < size_; ++r)
        if (gone_[r]) fail_without(*exchange, r);
    }
    if (last) {
      open_.erase(key);
      lock.unlock();
      if (!exchange->ended()) exchange->start();
    }
    return exchange;
  }

  // The first failure breaks the group, so that nobody waits for a rank that has given up.
  void fail(Failure failure) {
    const Lock lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    for (auto& [key, exchange] : open_) exchange->fail(*failure_);
  }

  void give_up(const std::shared_ptr<Exchange>& exchange, double seconds) {
    int missing;
    {
      const Lock lock(mutex_);
      missing = exchange->missing();
    }
    if (missing >= 0) fail({missing, text("rank ", missing, " did not come within ", seconds, " s")});
  }

  void leave(int rank) {
    const Lock lock(mutex_);
    gone_[rank] = true;
    for (auto& [key, exchange] : open_) fail_without(*exchange, rank);
  }

  std::shared_ptr<Hub> subhub(int number, const std::vector<int>& members) {
    const Lock lock(mutex_);
    auto& child = children_[{number, members[0]}];
    if (!child.hub) child = {std::make_shared<Hub>(static_cast<int>(members.size())), members.size()};
    const auto hub = child.hub;
    if (--child.expected == 0) children_.erase({number, members[0]});
    return hub;
  }

 private:
  // Lives until all members have come: one may have left again before others come.
  struct Child {
    std::shared_ptr<Hub> hub;
    size_t expected = 0;
  };

  static void fail_without(Exchange& exchange, int gone) {
    if (!exchange.has_arrived(gone)) exchange.fail({gone, text("rank ", gone, " has left the group")});
  }

  std::vector<int> participants(const Key& key) const {
    if (key.from >= 0) return {key.from, key.to};
    std::vector<int> all(size_);
    for (int r = 0; r < size_; ++r) all[r] = r;
    return all;
  }

  const int size_;
  SpinPolicy spin_policy_;
  Mutex mutex_;
  std::map<Key, std::shared_ptr<Exchange>> open_ LOCKSTEP_GUARDED_BY(mutex_);  // some participant is missing
  std::vector<bool> gone_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<Failure> failure_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, Child> children_ LOCKSTEP_GUARDED_BY(mutex_);
};

class LocalWork : public WorkState {
 public:
  LocalWork(std::shared_ptr<Hub> hub, int rank, std::shared_ptr<Exchange> exchange, std::string what,
            Clock::duration timeout)
      : hub_(std::move(hub)),
        rank_(rank),
        exchange_(std::move(exchange)),
        what_(std::move(what)),
        deadline_(start_ + timeout) {}
  ~LocalWork() override { exchange_->release(rank_); }
  LocalWork(const LocalWork&) = delete;
  LocalWork& operator=(const LocalWork&) = delete;

  bool done() override { return exchange_->ended(); }

  bool wait_until(Clock::time_point until) override {
    if (!exchange_->help_until(rank_, std::min(until, deadline_))) {
      if (Clock::now() < deadline_) return false;
      hub_->give_up(exchange_, seconds_since(start_));
      // It has failed, or all came just now and it is about to end.
      exchange_->help_until(rank_, Clock::time_point::max());
    }
    if (exchange_->failure()) {
      const Failure& failure = *exchange_->failure();
      throw CommError(failure.rank, what_, seconds_since(start_), text(what_, ": ", failure.reason));
    }
    return true;
  }

 private:
  std::shared_ptr<Hub> hub_;
  int rank_;
  std::shared_ptr<Exchange> exchange_;
  std::string what_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point deadline_;
};

class LocalBackend : public Backend {
 public:
  LocalBackend(std::shared_ptr<Hub> hub, int rank, std::chrono::milliseconds timeout)
      : hub_(std::move(hub)), rank_(rank), timeout_(timeout) {}
  ~LocalBackend() override { hub_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string name() const override { return "local"; }
  std::chrono::milliseconds timeout() const override { return timeout_; }

  std::shared_ptr<WorkState> post(Call call) override {
    Key key;
    if (call.kind == Kind::send || call.kind == Kind::recv) {
      const bool sends = call.kind == Kind::send;
      key = {sends ? rank_ : call.peer, sends ? call.peer : rank_, call.tag, 0};
      require(key.from != key.to, name_of(call.kind), "the other rank is this rank ", rank_, ", expected another");
      key.number = messages_[key]++;
    } else {
      key.number = collectives_++;
    }
    const auto timeout = call.timeout;
    std::string what = name_of(call.kind);
    return std::make_shared<LocalWork>(hub_, rank_, hub_->post(rank_, key, std::move(call)), std::move(what), timeout);
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members, int number) override {
    const int rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    return std::make_shared<LocalBackend>(hub_->subhub(number, members), rank, timeout_);
  }

  void abort(const std::string& reason) noexcept override { hub_->fail({rank_, reason}); }

 private:
  const std::shared_ptr<Hub> hub_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  int64_t collectives_ = 0;
  std::map<Key, int64_t> messages_;  // by their key without a number
};

}  // namespace
}  // namespace lockstep::comm::local

namespace lockstep::comm {

std::vector<Group> local_groups(int size, std::chrono::milliseconds timeout) {
  require(size >= 1, "local_groups", "size is ", size, ", expected 1 or more");
  const auto hub = std::make_shared<local::Hub>(size);
  std::vector<Group> groups;
  for (int rank = 0; rank < size; ++rank)
    groups.emplace_back(std::make_shared<local::LocalBackend>(hub, rank, timeout));
  return groups;
}

}  // namespace lockstep::comm
