// SPDX-License-Identifier: Apache-2.0
#include "launch/survival/host_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <utility>

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kSign{300};
constexpr std::chrono::milliseconds kSilent{2000};
// Longer than any line: what has no end is not from a launcher.
constexpr size_t kLongest = 1 << 16;

}  // namespace

HostLink::HostLink(Descriptor socket) : socket_(std::move(socket)) {
  set_nonblocking(socket_);
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void HostLink::say(std::string_view line) {
  out_.append(line).push_back('\n');
  said_ = Clock::now();
  flush();
}

void HostLink::flush() {
  while (!out_.empty() && !closed_) {
    const ssize_t sent = send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      closed_ = errno != EAGAIN;
      return;
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
}

// What has come is read before its age is judged: this process may have been stopped.
std::vector<std::string> HostLink::hear() {
  char bytes[4096];
  while (!closed_) {
    const ssize_t count = recv(socket_.get(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0 || in_.size() > kLongest) {
      closed_ = true;
      break;
    }
    in_.append(bytes, static_cast<size_t>(count));
    heard_ = Clock::now();
  }
  std::vector<std::string> lines;
  for (size_t end = 0; (end = in_.find('\n')) != std::string::npos; in_.erase(0, end + 1))
    if (end > 0) lines.push_back(in_.substr(0, end));
  if (Clock::now() - said_ >= kSign)
    say("");  // a sign of life
  else
    flush();
  return lines;
}

bool HostLink::is_lost() const {
  return closed_ || Clock::now() - heard_ > kSilent;
}

}  // namespace lockstep::launch
