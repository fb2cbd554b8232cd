// SPDX-License-Identifier: Apache-2.0
#include "simulation/world/network.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/failure/culprit.h"
#include "lockstep/base/error.h"
#include "lockstep/context/detail/watched_operations.h"
#include "simulation/world/store.h"

namespace lockstep::simulation {

using comm::Message;
using comm::TransportFailure;

// One message at one of its ends.
struct Network::Slot {
  int peer;  // the rank at the other end
  at::Tensor tensor;
  bool done = false;
  bool dropped = false;  // nobody waits for it any more: its memory is not ours
  const char* trouble = nullptr;
};

struct Network::Parcel {
  std::shared_ptr<Slot> sender;
  at::Tensor bytes;  // its own, or the sender's
};

struct Network::Channel {
  std::deque<Parcel> on_the_way;
  std::deque<Parcel> arrived;
  std::deque<std::shared_ptr<Slot>> awaited;
  Time last = 0;  // when the last one arrives
};

// Messages of one direction between two processes.
struct Network::Link {
  bool broken = false;
  std::map<uint32_t, Channel> channels;
};

struct Network::Gathering {
  std::set<int> come;
};

class SimulatedPending : public comm::Pending {
 public:
  SimulatedPending(Network& network, std::vector<std::shared_ptr<Network::Slot>> slots)
      : network_(network), slots_(std::move(slots)) {}
  ~SimulatedPending() override {
    for (const auto& slot : slots_)
      if (!slot->done) slot->dropped = true;
  }

  void wait(comm::Clock::time_point deadline) override {
    const Time until = std::chrono::nanoseconds(deadline.time_since_epoch()).count();
    for (; waited_ < slots_.size(); ++waited_) {
      const Network::Slot& slot = *slots_[waited_];
      while (!slot.done && slot.trouble == nullptr)
        if (!network_.scheduler_.block(&slot, "a message", until)) throw TransportFailure(slot.peer, "it timed out");
      if (slot.trouble != nullptr) throw TransportFailure(slot.peer, slot.trouble);
    }
  }

 private:
  Network& network_;
  std::vector<std::shared_ptr<Network::Slot>> slots_;
  size_t waited_ = 0;
};

class SimulatedTransport : public comm::Transport {
 public:
  SimulatedTransport(Network& network, std::string name, const std::vector<int>& members, int rank,
                     std::chrono::milliseconds timeout, comm::FailureReports reports)
      : network_(network),
        name_(std::move(name)),
        group_(network.group_of(name_, members)),
        members_(members),
        rank_(rank),
        timeout_(timeout),
        reports_(std::move(reports)) {}

  std::string name() const override { return "simulated"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  std::unique_ptr<comm::Pending> start(std::span<const Message> sends, std::span<const Message> receives,
                                       uint32_t channel) override {
    if (closed_) throw TransportFailure(-1, "the connection is closed");
    std::vector<std::shared_ptr<Network::Slot>> slots;
    const auto slot_of = [&](const Message& message) {
      return slots.emplace_back(std::make_shared<Network::Slot>(Network::Slot{message.peer, message.tensor}));
    };
    for (const Message& message : receives)
      network_.receive(group_, members_[message.peer], process(), channel, slot_of(message));
    for (const Message& message : sends) {
      network_.send(group_, process(), members_[message.peer], channel, slot_of(message));
      network_.count_message();
    }
    return std::make_unique<SimulatedPending>(network_, std::move(slots));
  }

  bool ring_all_reduce(const at::Tensor&, ReduceOp, comm::Clock::time_point) override { return false; }

  // All of them come, or none has the group.
  std::shared_ptr<comm::Transport> subgroup(const std::vector<int>& ranks, int number) override {
    const std::string name = text(name_, "/", number, "from", ranks[0]);
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(members_[rank]);
    network_.gather(name, members, process(), timeout_, [&] {
      for (const int rank : ranks)
        if (closed_ || (rank != rank_ && network_.link(group_, members_[rank], process()).broken)) return rank;
      return -1;
    });
    const auto mine = std::ranges::find(ranks, rank_) - ranks.begin();
    return std::make_shared<SimulatedTransport>(network_, name, members, static_cast<int>(mine), timeout_,
                                                reports_.of_subgroup(ranks, name));
  }

  int find_culprit(int suspect, std::chrono::milliseconds patience) noexcept override {
    return reports_.find_culprit(suspect, patience);
  }

  void close() noexcept override {
    if (std::exchange(closed_, true)) return;
    network_.close(group_, process());
  }

 private:
  int process() const { return members_[rank_]; }

  Network& network_;
  const std::string name_;
  const int group_;
  const std::vector<int> members_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  const comm::FailureReports reports_;
  bool closed_ = false;
};

std::string to_text(const Fault& fault) {
  const std::string when = text(" at message ", fault.at_message);
  const std::string time = text(" for ", static_cast<double>(fault.lasts) / kSecond, " s");
  switch (fault.kind) {
    case Fault::Kind::crash:
      return text("process ", fault.process, " dies", when);
    case Fault::Kind::vanish:
      return text("process ", fault.process, " vanishes", when);
    case Fault::Kind::stall:
      return text("process ", fault.process, " stands still", when, time);
    case Fault::Kind::partition:
      return text("processes below ", fault.process, " are cut off", when, time);
  }
  return {};
}

Network::Network(Scheduler& scheduler, std::shared_ptr<Store> store, Options options)
    : scheduler_(scheduler), store_(std::move(store)), options_(std::move(options)) {}
Network::~Network() = default;

std::shared_ptr<comm::Transport> Network::join(const std::string& name, const std::vector<int>& members, int process,
                                               std::chrono::milliseconds timeout) {
  gather(name, members, process, timeout, [] { return -1; });
  const auto rank = static_cast<int>(std::ranges::find(members, process) - members.begin());
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_->connect(process));
  return std::make_shared<SimulatedTransport>(*this, name, members, rank, timeout,
                                              comm::FailureReports(store, rank, static_cast<int>(members.size())));
}

// All of them come, or none has the group. `missing`: the member of whom it is known that it does not come, or -1.
void Network::gather(const std::string& name, const std::vector<int>& members, int process,
                     std::chrono::milliseconds timeout, const std::function<int()>& missing) {
  auto& gathering = gatherings_[name];
  if (!gathering) gathering = std::make_unique<Gathering>();
  gathering->come.insert(process);
  scheduler_.wake(gathering.get());
  const Time until = scheduler_.now() + timeout.count() * kMillisecond;
  while (gathering->come.size() < members.size()) {
    if (const int rank = missing(); rank >= 0) throw TransportFailure(rank, "it does not come to the new group");
    if (scheduler_.block(gathering.get(), "the members of a new group", until)) continue;
    const auto late = std::ranges::find_if(members, [&](int member) { return !gathering->come.contains(member); });
    throw TransportFailure(static_cast<int>(late - members.begin()), "it did not come to the new group in time");
  }
}

Network::Group Network::group_of(const std::string& name, const std::vector<int>& members) {
  const auto [found, is_new] = names_.emplace(name, static_cast<Group>(members_.size()));
  if (is_new) members_.push_back(members);
  return found->second;
}

Network::Link& Network::link(Group group, int from, int to) {
  auto& found = links_[{group, from, to}];
  if (!found) found = std::make_unique<Link>();
  return *found;
}

// Most messages are quick, and some are not.
Time Network::some_delay() {
  Draws& draws = scheduler_.draws();
  return draws.chance(0.1) ? draws.below(options_.longest_delay) : draws.between(20, 120) * kMicrosecond;
}

bool Network::is_cut(int from, int to) const {
  return (from < cut_) != (to < cut_);
}

void Network::settle(Slot& slot, const char* trouble) {
  if (slot.done || slot.trouble != nullptr) return;
  slot.done = trouble == nullptr;
  slot.trouble = trouble;
  scheduler_.wake(&slot);
}

void Network::send(Group group, int from, int to, uint32_t number, const std::shared_ptr<Slot>& slot) {
  Link& way = link(group, from, to);
  if (way.broken) return settle(*slot, "the connection was closed by the peer");
  Channel& channel = way.channels[number];
  channel.on_the_way.push_back({slot, options_.reads_late ? slot->tensor : slot->tensor.clone()});
  channel.last = std::max(channel.last, scheduler_.now() + some_delay());
  if (!options_.reads_late) settle(*slot, nullptr);
  scheduler_.at(channel.last, [=, this] { deliver(group, from, to, number); });
}

void Network::receive(Group group, int from, int to, uint32_t number, const std::shared_ptr<Slot>& slot) {
  Link& way = link(group, from, to);
  Channel& channel = way.channels[number];
  channel.awaited.push_back(slot);
  match(channel);
  if (way.broken) settle(*slot, "the connection was closed by the peer");
}

void Network::deliver(Group group, int from, int to, uint32_t number) {
  Link& way = link(group, from, to);
  if (way.broken || dead_.contains(to)) return;
  if (is_cut(from, to))  // it is sent again and again
    return scheduler_.at(scheduler_.now() + 200 * kMillisecond, [=, this] { deliver(group, from, to, number); });
  Channel& channel = way.channels[number];
  if (channel.on_the_way.empty()) return;
  Parcel parcel = std::move(channel.on_the_way.front());
  channel.on_the_way.pop_front();
  // Whoever gives up while a message leaves its memory breaks the connection, which is on its way too.
  if (options_.reads_late && parcel.sender->dropped) return;
  if (options_.reads_late) {
    const Unwatched unwatched;  // whoever's thread this runs on watches its own operations
    parcel.bytes = parcel.bytes.clone();
  }
  settle(*parcel.sender, nullptr);
  channel.arrived.push_back(std::move(parcel));
  match(channel);
}

void Network::match(Channel& channel) {
  while (!channel.arrived.empty() && !channel.awaited.empty()) {
    const Parcel parcel = std::move(channel.arrived.front());
    channel.arrived.pop_front();
    const auto receiver = std::move(channel.awaited.front());
    channel.awaited.pop_front();
    if (receiver->dropped || receiver->trouble != nullptr) continue;
    if (parcel.bytes.nbytes() != receiver->tensor.nbytes()) {
      settle(*receiver, "the message has another size");
      continue;
    }
    std::memcpy(receiver->tensor.mutable_data_ptr(), parcel.bytes.const_data_ptr(), parcel.bytes.nbytes());
    settle(*receiver, nullptr);
  }
}

// The other end of a link sees that it is closed: behind all that was sent or, with a reset, before.
void Network::break_link(Group group, int from, int to, bool resets) {
  if (is_cut(from, to))
    return scheduler_.at(scheduler_.now() + 200 * kMillisecond, [=, this] { break_link(group, from, to, resets); });
  for (const auto& [number, channel] : link(group, from, to).channels)
    if (!resets && !channel.on_the_way.empty())
      return scheduler_.at(scheduler_.now() + kMillisecond, [=, this] { break_link(group, from, to, resets); });
  for (auto [a, b] : {std::pair(from, to), {to, from}}) {
    Link& way = link(group, a, b);
    way.broken = true;
    for (auto& [number, channel] : way.channels) {
      for (const Parcel& parcel : channel.on_the_way) settle(*parcel.sender, "the connection was closed by the peer");
      for (const auto& slot : channel.awaited) settle(*slot, "the connection was closed by the peer");
    }
  }
  for (const auto& [name, gathering] : gatherings_) scheduler_.wake(gathering.get());
}

// Its own operations fail at once. What it has sent may be lost where it has not read all that was sent to it, as the
// kernel then resets the connection.
void Network::close(Group group, int process) {
  for (const int peer : members_[group]) {
    if (peer == process) continue;
    Link& from_peer = link(group, peer, process);
    for (auto& [number, channel] : from_peer.channels)
      for (const auto& slot : channel.awaited) settle(*slot, "the connection is closed");
    for (auto& [number, channel] : link(group, process, peer).channels)
      for (const Parcel& parcel : channel.on_the_way) settle(*parcel.sender, "the connection is closed");
    bool unread = false;
    for (const auto& [number, channel] : from_peer.channels)
      unread |= !channel.on_the_way.empty() || !channel.arrived.empty();
    const bool resets = unread && scheduler_.draws().chance(0.5);
    scheduler_.at(scheduler_.now() + some_delay(), [=, this] { break_link(group, process, peer, resets); });
  }
}

void Network::count_message() {
  ++messages_;
  for (const Fault& fault : options_.faults)
    if (fault.at_message == messages_) strike(fault);
}

void Network::strike(const Fault& fault) {
  const Time end = scheduler_.now() + fault.lasts;
  if (fault.kind == Fault::Kind::partition) {
    cut_ = fault.process;
    scheduler_.at(end, [this] { cut_ = 0; });
    return;
  }
  const bool is_there =
      std::ranges::any_of(members_, [&](const auto& group) { return std::ranges::count(group, fault.process) > 0; });
  if (!is_there || dead_.contains(fault.process)) return;
  if (fault.kind == Fault::Kind::stall) {
    disturbed_.insert(fault.process);
    scheduler_.at(end, [this, process = fault.process] {
      if (!dead_.contains(process)) scheduler_.thaw(process);
    });
    scheduler_.freeze(fault.process);
  } else if (fault.kind == Fault::Kind::crash) {
    lose(fault.process);
  } else {
    dead_.insert(fault.process);
    scheduler_.wake(&dead_);
    scheduler_.freeze(fault.process);
  }
}

void Network::lose(int process) {
  if (!dead_.insert(process).second) return;
  scheduler_.wake(&dead_);
  for (Group group = 0; group < static_cast<Group>(members_.size()); ++group)
    if (std::ranges::count(members_[group], process) > 0) close(group, process);
  scheduler_.freeze(process);
}

void Network::bury_dead() {
  for (const int process : dead_) {
    store_->disconnect(process);
    for (Group group = 0; group < static_cast<Group>(members_.size()); ++group)
      if (std::ranges::count(members_[group], process) > 0) {
        close(group, process);
        for (const int peer : members_[group])
          if (peer != process) break_link(group, process, peer, /*resets=*/true);
      }
    scheduler_.thaw(process);
  }
  scheduler_.wake(store_.get());
}

}  // namespace lockstep::simulation
