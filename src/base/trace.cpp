// SPDX-License-Identifier: Apache-2.0
// Chrome's trace format: one object with a list of events, each span a complete event ("ph": "X").
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/timeline.h"

namespace lockstep {
namespace {

constexpr std::string_view kHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
constexpr std::string_view kTail = "\n]}\n";

template <class... Values>
void append(std::string& out, const char* format, Values... values) {
  char line[256];
  const int length = std::snprintf(line, sizeof line, format, values...);
  out.append(line, static_cast<size_t>(length));
}

// Nanoseconds as microseconds with three digits behind the point.
#define LOCKSTEP_US "%" PRId64 ".%03" PRId64
#define LOCKSTEP_US_OF(ns) (ns) / 1000, (ns) % 1000

void append_name(std::string& out, const char* kind, int rank, int64_t thread, const std::string& name) {
  append(out, ",\n{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%" PRId64 ",\"args\":{\"name\":\"%s\"}}", kind, rank,
         thread, name.c_str());
}

void append_span(std::string& out, const TraceSpan& span, int rank, int64_t thread) {
  append(out,
         ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%" PRId64 ",\"ts\":" LOCKSTEP_US ",\"dur\":" LOCKSTEP_US,
         span.name, rank, thread, LOCKSTEP_US_OF(span.begin), LOCKSTEP_US_OF(span.end - span.begin));
  if (span.what != nullptr)
    append(out, ",\"args\":{\"for\":\"%s\"}", span.what);
  else if (span.number >= 0)
    append(out, ",\"args\":{\"number\":%" PRId64 "}", span.number);
  out += '}';
}

std::string events_of(int rank, std::span<const TraceThread> threads, std::span<const TraceRow> rows) {
  char host[64] = "unknown host";
  gethostname(host, sizeof host - 1);
  std::string out;
  append_name(out, "process_name", rank, 0, text("rank ", rank, " on ", host));
  for (const auto& [replica, timeline] : threads) {
    append_name(out, "thread_name", rank, replica, text("replica ", replica));
    for (const TraceSpan& span : timeline->spans()) append_span(out, span, rank, replica);
    if (timeline->dropped() > 0)
      log_warning("LOCKSTEP_TRACE: replica ", replica, " has ", timeline->dropped(),
                  " spans more than a trace keeps; the file holds the first ", timeline->spans().size());
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t thread = kFirstTraceRow + static_cast<int64_t>(r);
    append_name(out, "thread_name", rank, thread, rows[r].name);
    for (const TraceSpan& span : rows[r].spans) append_span(out, span, rank, thread);
  }
  return out;
}

}  // namespace

std::string trace_file(int rank, int ranks) {
  const char* named = std::getenv("LOCKSTEP_TRACE");
  if (named == nullptr || *named == '\0') return {};
  std::string file = named;
  if (ranks == 1) return file;
  constexpr std::string_view suffix = ".json";
  if (file.ends_with(suffix)) file.resize(file.size() - suffix.size());
  return text(file, ".rank", rank, suffix);
}

void write_trace(const std::string& file, int rank, std::span<const TraceThread> threads,
                 std::span<const TraceRow> rows) {
  static Mutex mutex;
  static std::set<std::string> begun LOCKSTEP_GUARDED_BY(mutex);
  const Lock lock(mutex);
  const std::string events = events_of(rank, threads, rows);
  const bool first = begun.insert(file).second;
  std::fstream out(file, first ? std::ios::out | std::ios::trunc : std::ios::in | std::ios::out);
  if (first) {
    out << kHead << std::string_view(events).substr(1);  // no comma before the first event
  } else {
    out.seekp(-static_cast<std::streamoff>(kTail.size()), std::ios::end);
    out << events;
  }
  out << kTail << std::flush;
  require(out.good(), "LOCKSTEP_TRACE", "cannot write '", file, "', expected a file in a folder that exists");
}

}  // namespace lockstep
