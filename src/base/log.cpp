// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "lockstep/base/detail/descriptor.h"
#include "lockstep/base/detail/guarded.h"

namespace lockstep {
namespace {

constexpr LogLevel all_log_levels[] = {LogLevel::error, LogLevel::warning, LogLevel::info, LogLevel::debug};
constexpr int no_rank = -1;

std::atomic<LogLevel>& current_log_level() {
  static std::atomic<LogLevel> level{[] {
    const char* text = std::getenv("LOCKSTEP_LOG");
    return text == nullptr || *text == '\0' ? LogLevel::warning : parse_log_level("LOCKSTEP_LOG", text);
  }()};
  return level;
}

std::atomic<int> process_rank{no_rank};
thread_local std::optional<int> thread_rank;

// Never destroyed: threads and destructors may log while the process ends.
struct Output {
  Mutex mutex;
  LogSink sink LOCKSTEP_GUARDED_BY(mutex);
};
Output& output() {
  static auto* instance = new Output;
  return *instance;
}

LogSink exchange_sink(LogSink sink) {
  Output& out = output();
  const Lock lock(out.mutex);
  return std::exchange(out.sink, std::move(sink));
}

std::string prefix(LogLevel level) {
  const int rank = thread_rank.value_or(process_rank.load(std::memory_order_relaxed));
  return rank == no_rank ? text(to_string(level), ": ") : text("[rank ", rank, "] ", to_string(level), ": ");
}

// The whole message at once: the kernel keeps a write of up to PIPE_BUF bytes (4 KiB) to a pipe in one piece.
void write_to_stderr(std::string_view lines) {
  static_cast<void>(write_all(STDERR_FILENO, lines));  // Where nobody reads, there is no better place to complain.
}

}  // namespace

const char* to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::error:
      return "error";
    case LogLevel::warning:
      return "warning";
    case LogLevel::info:
      return "info";
    case LogLevel::debug:
      return "debug";
  }
  LOCKSTEP_ASSERT(!"a LogLevel outside its enumeration");
}

LogLevel parse_log_level(const char* operation, std::string_view text) {
  for (LogLevel level : all_log_levels)
    if (text == to_string(level)) return level;
  fail(operation, "got '", text, "', expected error, warning, info or debug");
}

LogLevel log_level() {
  return current_log_level().load(std::memory_order_relaxed);
}
void set_log_level(LogLevel level) {
  current_log_level().store(level, std::memory_order_relaxed);
}

void set_log_rank(std::optional<int> rank) noexcept {
  process_rank.store(rank.value_or(no_rank), std::memory_order_relaxed);
}

ScopedLogRank::ScopedLogRank(int rank) noexcept : before_(std::exchange(thread_rank, rank)) {}
ScopedLogRank::~ScopedLogRank() {
  thread_rank = before_;
}

ScopedLogSink::ScopedLogSink(LogSink sink) : before_(exchange_sink(std::move(sink))) {}
ScopedLogSink::~ScopedLogSink() {
  exchange_sink(std::move(before_));
}

void detail::write_log(LogLevel level, std::string_view message) {
  // Every line of a long message carries the prefix, so that it can be picked out by rank.
  const std::string start = prefix(level);
  std::string lines;
  for (bool more = true; more;) {
    const size_t end = message.find('\n');
    more = end != std::string_view::npos && end + 1 < message.size();
    lines.append(start).append(message.substr(0, end)).push_back('\n');
    if (more) message.remove_prefix(end + 1);
  }
  Output& out = output();
  const Lock lock(out.mutex);
  if (out.sink)
    out.sink(level, lines);
  else
    write_to_stderr(lines);
}

}  // namespace lockstep
