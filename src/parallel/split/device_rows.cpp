// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/device_rows.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

/// A replica computed, on one device of `part`.
struct Busy {
  TraceSpan span;
  int64_t part;
};

struct DeviceRow {
  int64_t part;
  std::vector<TraceSpan> spans = {};

  int64_t busy_until() const { return spans.empty() ? 0 : spans.back().end; }
  bool ran_last(int64_t replica) const { return !spans.empty() && spans.back().number == replica; }
};

// A replica that waits for examples keeps its device.
bool is_busy(std::string_view phase) {
  return phase != "wait" && phase != "exposed" && phase != "step" && phase != "rest";
}

// A replica's spans are nested. What each has to itself, in the order of time, is cut where another part begins.
class Flattening {
 public:
  Flattening(const TraceThread& thread, std::vector<Busy>& to) : thread_(thread), to_(to) {}

  void run() {
    const auto all = thread_.timeline->spans();
    std::vector<TraceSpan> spans(all.begin(), all.end()), open;
    std::ranges::stable_sort(
        spans, [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
    for (const TraceSpan& span : spans) {
      close(open, span.begin);
      if (!open.empty()) add(open.back().name, at_, span.begin);
      at_ = span.begin;
      open.push_back(span);
    }
    close(open, INT64_MAX);
  }

 private:
  void close(std::vector<TraceSpan>& open, int64_t until) {
    for (; !open.empty() && open.back().end <= until; open.pop_back()) {
      add(open.back().name, at_, open.back().end);
      at_ = open.back().end;
    }
  }

  void add(const char* name, int64_t begin, int64_t end) {
    if (!is_busy(name)) return;
    const auto marks = thread_.timeline->parts();
    for (; begin < end;) {
      while (next_ < marks.size() && marks[next_].at <= begin) part_ = marks[next_++].part;
      const int64_t until = next_ < marks.size() ? std::min(end, marks[next_].at) : end;
      to_.push_back({{.begin = begin, .end = until, .name = name, .number = thread_.replica}, part_});
      begin = until;
    }
  }

  const TraceThread& thread_;
  std::vector<Busy>& to_;
  int64_t at_ = 0;
  size_t next_ = 0;
  int64_t part_ = -1;
};

// One that is free, of these the one that the replica had last. A thread that is woken is ahead of the other's clock by
// moments: then the one that is free first.
DeviceRow& row_for(std::vector<DeviceRow>& rows, const Busy& busy) {
  DeviceRow* best = nullptr;
  const auto rank = [&](const DeviceRow& row) {
    const int64_t late = std::max<int64_t>(0, row.busy_until() - busy.span.begin);
    return std::pair(late, row.ran_last(busy.span.number) ? 0 : 1);
  };
  for (DeviceRow& row : rows)
    if ((busy.part < 0 || row.part == busy.part) && (best == nullptr || rank(row) < rank(*best))) best = &row;
  LOCKSTEP_ASSERT(best != nullptr);
  return *best;
}

}  // namespace

std::vector<TraceRow> device_rows(std::span<const TraceThread> replicas, std::span<const int64_t> devices) {
  std::vector<Busy> all;
  for (const TraceThread& replica : replicas) Flattening(replica, all).run();
  std::ranges::stable_sort(all, {}, [](const Busy& busy) { return busy.span.begin; });
  std::vector<DeviceRow> rows;
  for (size_t part = 0; part < devices.size(); ++part)
    rows.resize(rows.size() + static_cast<size_t>(devices[part]), {static_cast<int64_t>(part)});
  for (Busy& busy : all) {
    DeviceRow& row = row_for(rows, busy);
    busy.span.begin = std::max(busy.span.begin, row.busy_until());
    if (busy.span.begin < busy.span.end) row.spans.push_back(busy.span);
  }
  std::vector<TraceRow> out;
  for (DeviceRow& row : rows) {
    const std::string device = text("device ", out.size());
    out.push_back({devices.size() == 1 ? device : text(device, ", part ", row.part), std::move(row.spans)});
  }
  return out;
}

}  // namespace lockstep::parallel
