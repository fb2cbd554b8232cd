// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// Makes whole, prefixed lines of what a rank writes piece by piece. A line that is drawn over with carriage returns
/// (a progress bar) comes out as it ends; one longer than 64 KiB is cut.
class Lines {
 public:
  explicit Lines(std::string prefix) : prefix_(std::move(prefix)) {}

  /// The lines that end in this piece, each with its prefix and newline.
  std::string feed(std::string_view piece);
  /// The unfinished last line, with a newline of our own.
  std::string finish();

 private:
  void end_line(std::string& lines);

  std::string prefix_;
  std::string partial_;
};

/// Writes to standard output and standard error in the order of the calls, without ever blocking: a reader that has
/// paused must not keep the launcher from its signals.
class Output {
 public:
  void add(int fd, std::string text);
  /// Writes what can be written now.
  void flush();
  /// Writes all, and waits for the reader.
  void drain();

  bool empty() const { return queue_.empty(); }
  /// Too much waits to be written: take no more from the ranks.
  bool full() const { return bytes_ > (1 << 20); }
  /// Where the next text goes; only when not empty.
  int next_fd() const { return queue_.front().fd; }
  /// Nobody reads this one any more.
  bool is_broken(int fd) const { return fd == 1 ? broken_[0] : broken_[1]; }

 private:
  struct Text {
    int fd;
    std::string text;
    size_t written = 0;
  };
  bool write_some(bool wait);

  std::deque<Text> queue_;
  size_t bytes_ = 0;
  bool broken_[2] = {false, false};
};

/// "[2] ", in a colour of its own where `fd` is a terminal that shows colours (and NO_COLOR is not set).
std::string prefix_of(int rank, int fd);

}  // namespace lockstep::launch
