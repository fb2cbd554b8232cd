// SPDX-License-Identifier: Apache-2.0
#include <netdb.h>
#include <poll.h>

#include <cerrno>
#include <set>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "launch/survival/host_link.h"
#include "launch/survival/roster.h"
#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAttempt{1};   // so long may a connection take
constexpr std::chrono::seconds kLastWord{2};  // and the last one

class DistantRoster final : public Roster {
 public:
  DistantRoster(std::string host, int port, int first, int count) : host_(std::move(host)), port_(port) {
    say(text("host ", first, " ", count));
  }

  std::string lose(int rank) override {
    say(text("lost ", rank));
    return text("; ", host_, " is told");
  }
  void expect(int rank, pid_t newcomer) override { say(text("newcomer ", rank, " ", newcomer)); }
  void forget(int rank, pid_t newcomer) override { say(text("forget ", rank, " ", newcomer)); }
  bool has_admitted(int /*rank*/, pid_t newcomer) const override { return admitted_.contains(newcomer); }

  void look() override {
    if (end_) return;
    if (!link_) return connect();
    for (const std::string& line : link_->hear()) hear(line);
    if (!end_ && link_->is_lost())
      end_ = DistantEnd{text("the launcher on ", host_, " is gone, or has given this host up"), 1};
  }

  bool has_other_hosts() const override { return true; }
  bool awaits_others(bool ended) const override { return !ended && !end_; }
  bool is_too_small() const override { return too_small_; }
  std::optional<DistantEnd> distant_end() const override { return end_; }
  void end(int exit_code) override {
    say(text("end ", exit_code));
    // The ranks may have ended before there was a connection.
    for (const auto until = SteadyClock::now() + kLastWord; !link_ && !end_ && SteadyClock::now() < until;) {
      connect();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  // What is said before there is a connection is said with it.
  void say(const std::string& line) {
    if (link_)
      link_->say(line);
    else
      unsaid_.push_back(line);
  }

  void hear(const std::string& line) {
    std::istringstream in(line);
    std::string what;
    in >> what;
    if (pid_t process = 0; what == "admitted" && in >> process >> process) {
      admitted_.insert(process);
    } else if (what == "too") {
      too_small_ = true;
    } else if (int code = 0; what == "end" && in >> code) {
      end_ = DistantEnd{code == 0 ? "" : text(host_, " has ended with exit code ", code), code};
    }
  }

  // The other launcher may be started later, and a name may have several addresses: one after the other is tried.
  void connect() {
    if (!socket_) return begin_to_connect();
    pollfd ready{socket_.get(), POLLOUT, 0};
    if (poll(&ready, 1, 0) == 1) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return socket_.close();
      link_.emplace(std::move(socket_));
      for (const std::string& line : std::exchange(unsaid_, {})) link_->say(line);
    } else if (SteadyClock::now() - begun_ > kAttempt) {
      socket_.close();
    }
  }

  void begin_to_connect() {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found) != 0) return;
    std::vector<const addrinfo*> addresses;
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) addresses.push_back(entry);
    const addrinfo& address = *addresses[attempt_++ % addresses.size()];
    socket_ = Descriptor(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    begun_ = SteadyClock::now();
    if (socket_ && ::connect(socket_.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS)
      socket_.close();
    freeaddrinfo(found);
  }

  const std::string host_;
  const int port_;
  Descriptor socket_;  // being connected
  SteadyClock::time_point begun_{};
  size_t attempt_ = 0;
  std::optional<HostLink> link_;
  std::vector<std::string> unsaid_;
  std::set<pid_t> admitted_;
  bool too_small_ = false;
  std::optional<DistantEnd> end_;
};

}  // namespace

std::unique_ptr<Roster> report_to_roster(const std::string& host, int port, int first, int count) {
  return std::make_unique<DistantRoster>(host, port, first, count);
}

}  // namespace lockstep::launch
