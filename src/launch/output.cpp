// SPDX-License-Identifier: Apache-2.0
#include "launch/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

constexpr size_t longest_line = 64 << 10;
// What a pipe or terminal that is ready takes without blocking.
constexpr size_t write_bytes = 4096;

}  // namespace

void Lines::end_line(std::string& lines) {
  while (!partial_.empty() && partial_.back() == '\r') partial_.pop_back();
  const size_t redrawn = partial_.rfind('\r');
  lines += prefix_;
  lines.append(partial_, redrawn == std::string::npos ? 0 : redrawn + 1);
  lines += '\n';
  partial_.clear();
}

std::string Lines::feed(std::string_view piece) {
  std::string lines;
  while (!piece.empty()) {
    const size_t end = std::min(piece.find('\n'), piece.size());
    const size_t take = std::min(end, longest_line - partial_.size());
    partial_.append(piece.substr(0, take));
    piece.remove_prefix(take);
    if (!piece.empty()) {
      if (piece.front() == '\n') piece.remove_prefix(1);
      end_line(lines);
    }
  }
  return lines;
}

std::string Lines::finish() {
  std::string lines;
  if (!partial_.empty()) end_line(lines);
  return lines;
}

void Output::add(int fd, std::string text) {
  if (text.empty() || is_broken(fd)) return;
  bytes_ += text.size();
  if (!queue_.empty() && queue_.back().fd == fd)
    queue_.back().text += text;
  else
    queue_.push_back({fd, std::move(text)});
}

// False: nothing more can be written now.
bool Output::write_some(bool wait) {
  Text& head = queue_.front();
  pollfd ready{head.fd, POLLOUT, 0};
  if (poll(&ready, 1, wait ? -1 : 0) != 1) return false;
  const size_t left = head.text.size() - head.written;
  const ssize_t count = ::write(head.fd, head.text.data() + head.written, std::min(left, write_bytes));
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count < 0) {
    broken_[head.fd != 1] = true;
    bytes_ -= left;
    queue_.pop_front();
    return true;
  }
  bytes_ -= count;
  head.written += count;
  if (head.written == head.text.size()) queue_.pop_front();
  return true;
}

void Output::flush() {
  while (!queue_.empty() && write_some(false)) {
  }
}

void Output::drain() {
  while (!queue_.empty()) write_some(true);
}

std::string prefix_of(int rank, int fd) {
  const char* terminal = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool color = isatty(fd) && terminal != nullptr && std::string_view(terminal) != "dumb" &&
                     (no_color == nullptr || *no_color == '\0');
  if (!color) return text("[", rank, "] ");
  constexpr int colors[] = {36, 33, 35, 32, 34, 31};
  return text("\033[", colors[rank % std::size(colors)], "m[", rank, "]\033[0m ");
}

}  // namespace lockstep::launch
