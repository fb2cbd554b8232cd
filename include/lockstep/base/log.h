// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

/// Messages for the person who watches a run: `[rank 2] warning: ...` on standard error. A message of one line is one
/// write(2), so that the lines of many processes and threads on one terminal or pipe do not mix.
namespace lockstep {

/// Most urgent first: a level lets through itself and all before it.
enum class LogLevel { error, warning, info, debug };

/// "error", "warning", "info" or "debug".
const char* to_string(LogLevel level) noexcept;

/// The inverse of to_string. Throws Error on any other text, naming `operation`.
LogLevel parse_log_level(const char* operation, std::string_view text);

/// The level of the process: warning, unless the environment's LOCKSTEP_LOG (read once) or set_log_level says another.
/// Throws Error when LOCKSTEP_LOG is no level.
LogLevel log_level();
void set_log_level(LogLevel level);

/// The rank that messages of this process carry; none by default.
void set_log_rank(std::optional<int> rank) noexcept;

/// The rank that messages of this thread carry while it lives, where the ranks are threads of one process.
class ScopedLogRank {
 public:
  explicit ScopedLogRank(int rank) noexcept;
  ~ScopedLogRank();
  ScopedLogRank(const ScopedLogRank&) = delete;
  ScopedLogRank& operator=(const ScopedLogRank&) = delete;

 private:
  std::optional<int> before_;
};

/// Takes whole lines, each with its prefix and newline; called by one thread at a time. It must not log.
using LogSink = std::function<void(LogLevel level, std::string_view lines)>;

/// Replaces standard error while it lives, for tests and for programs with a log of their own.
class ScopedLogSink {
 public:
  explicit ScopedLogSink(LogSink sink);
  ~ScopedLogSink();
  ScopedLogSink(const ScopedLogSink&) = delete;
  ScopedLogSink& operator=(const ScopedLogSink&) = delete;

 private:
  LogSink before_;
};

namespace detail {
void write_log(LogLevel level, std::string_view message);
}

/// Logs `text(parts...)`; the parts are only put together when the level lets the message through.
template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
  if (level <= log_level()) detail::write_log(level, text(parts...));
}
template <class... Parts>
void log_error(const Parts&... parts) {
  log(LogLevel::error, parts...);
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  log(LogLevel::warning, parts...);
}
template <class... Parts>
void log_info(const Parts&... parts) {
  log(LogLevel::info, parts...);
}
template <class... Parts>
void log_debug(const Parts&... parts) {
  log(LogLevel::debug, parts...);
}

}  // namespace lockstep
