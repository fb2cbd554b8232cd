// SPDX-License-Identifier: Apache-2.0
#include "launch/survival/host_link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <utility>

namespace lockstep::launch {
namespace {

constexpr int kSigns = 7;  // of life, while one would be silent
// Longer than any line: what has no end is not from a launcher.
constexpr size_t kLongest = 1 << 16;

}  // namespace

HostLink::HostLink(Descriptor socket, std::chrono::milliseconds silent) : socket_(std::move(socket)), silent_(silent) {
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
  while (!out_.empty() && state_ == State::open) {
    const ssize_t sent = send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      // What an ended launcher has said last is still to be read, and then says that it has ended.
      if (errno != EAGAIN && errno != EPIPE && errno != ECONNRESET) state_ = State::broken;
      return;
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
}

// What has come is read before its age is judged: this process may have been stopped.
std::vector<std::string> HostLink::hear() {
  char bytes[4096];
  while (state_ == State::open) {
    const ssize_t count = recv(socket_.get(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0 || in_.size() > kLongest) {
      const bool ended = count == 0 || (count < 0 && errno == ECONNRESET);  // else no way leads there any more
      state_ = ended ? State::closed : State::broken;
      break;
    }
    in_.append(bytes, static_cast<size_t>(count));
    heard_ = Clock::now();
  }
  std::vector<std::string> lines;
  for (size_t end = 0; (end = in_.find('\n')) != std::string::npos; in_.erase(0, end + 1))
    if (end > 0) lines.push_back(in_.substr(0, end));
  if (Clock::now() - said_ >= silent_ / kSigns)
    say("");  // a sign of life
  else
    flush();
  return lines;
}

bool HostLink::is_lost() const {
  return state_ != State::open || Clock::now() - heard_ > silent_;
}

std::string HostLink::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST];
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(socket_.get(), any, &size) != 0 ||
      getnameinfo(any, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  std::string text = host;
  // An address of IPv4 that came in at a socket for both.
  if (text.starts_with("::ffff:") && text.find('.') != std::string::npos) text.erase(0, 7);
  return text;
}

}  // namespace lockstep::launch
