// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/transport/transport.h"
#include "simulation/world/scheduler.h"

namespace lockstep::simulation {

class Store;

/// Something that happens to processes when so many messages have been sent in all.
struct Fault {
  enum class Kind : uint8_t {
    crash,      // its connections are closed, and the others see that sooner or later
    vanish,     // nobody hears of it any more
    stall,      // it stands still for some time
    partition,  // for some time no message gets from some processes to the others, or back
  };
  Kind kind;
  int process;  // of a partition: all below it are on the one side
  int64_t at_message;
  Time lasts;
};

std::string to_text(const Fault& fault);

/// What joins simulated processes: messages with delays, which overtake each other unless they are of one channel
/// between two ranks, and what happens to the processes. As with sockets, a connection that is closed at one end is
/// soon closed at the other.
class Network {
 public:
  struct Options {
    Time longest_delay = 5 * kMillisecond;
    bool reads_late = false;  // messages leave their sender's memory when they arrive, else when they are sent
    std::vector<Fault> faults{};
  };
  Network(Scheduler& scheduler, std::shared_ptr<Store> store, Options options);
  ~Network();

  /// This process's end of a group of these processes, once all of them have come to it. Throws TransportFailure where
  /// they don't within the timeout.
  std::shared_ptr<comm::Transport> join(const std::string& name, const std::vector<int>& members, int process,
                                        std::chrono::milliseconds timeout);

  const std::set<int>& dead() const { return dead_; }
  const std::set<int>& disturbed() const { return disturbed_; }
  int64_t messages() const { return messages_; }
  /// This process dies now.
  void lose(int process);
  /// Lets what is left of dead processes come to an end, without the others.
  void bury_dead();

 private:
  friend class SimulatedTransport;
  friend class SimulatedPending;
  struct Slot;
  struct Parcel;
  struct Channel;
  struct Link;
  struct Gathering;
  using Group = int;
  Link& link(Group group, int from, int to);
  Time some_delay();
  bool is_cut(int from, int to) const;
  void count_message();
  void strike(const Fault& fault);
  void send(Group group, int from, int to, uint32_t channel, const std::shared_ptr<Slot>& slot);
  void receive(Group group, int from, int to, uint32_t channel, const std::shared_ptr<Slot>& slot);
  void deliver(Group group, int from, int to, uint32_t channel);
  void match(Channel& channel);
  void close(Group group, int process);
  void break_link(Group group, int from, int to, bool resets);
  void settle(Slot& slot, const char* trouble);
  void gather(const std::string& name, const std::vector<int>& members, int process, std::chrono::milliseconds timeout,
              const std::function<int()>& missing);
  Group group_of(const std::string& name, const std::vector<int>& members);

  Scheduler& scheduler_;
  const std::shared_ptr<Store> store_;
  const Options options_;
  int64_t messages_ = 0;
  std::set<int> dead_, disturbed_;
  int cut_ = 0;  // processes below it are on their own
  std::map<std::string, Group> names_;
  std::vector<std::vector<int>> members_;  // of groups: processes by rank
  std::map<std::tuple<Group, int, int>, std::unique_ptr<Link>> links_;
  std::map<std::string, std::unique_ptr<Gathering>> gatherings_;
};

}  // namespace lockstep::simulation
