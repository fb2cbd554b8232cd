// SPDX-License-Identifier: Apache-2.0
#include "trials/traced.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/timeline.h"
#include "lockstep/run/detail/json.h"

namespace lockstep::trials {
namespace {

using run::Json;
using Row = std::pair<int64_t, int64_t>;  // process, thread

constexpr double kMicrosecond = 1e-6;

struct Event {
  Row row;
  double begin, end;
  std::string name;
};

struct Traces {
  std::vector<Event> events;           // of devices
  std::map<Row, std::string> devices;  // their names
  std::map<int64_t, double> begins;    // of each step, on whatever replica comes first
};

void read(Traces& to, const std::filesystem::path& file) {
  const Json trace = run::parse_json("run_trial", read_file(file), file.string());
  for (const Json& event : trace["traceEvents"]) {
    const Row row{event["pid"], event["tid"]};
    const bool of_device = row.second >= kFirstTraceRow, named = event["ph"] == "M";
    if (named && of_device) to.devices[row] = event["args"]["name"];
    if (named) continue;
    const double begin = kMicrosecond * event["ts"].get<double>();
    const std::string name = event["name"];
    if (of_device) {
      to.events.push_back({row, begin, begin + kMicrosecond * event["dur"].get<double>(), name});
    } else if (name == "step") {
      const auto known = to.begins.emplace(event["args"]["number"].get<int64_t>(), begin).first;
      known->second = std::min(known->second, begin);
    }
  }
}

TracedStep step_of(const Traces& traces, double begin, double end) {
  TracedStep step{.seconds = end - begin};
  const auto& devices = traces.devices;
  const bool several = !devices.empty() && devices.begin()->first.first != devices.rbegin()->first.first;
  for (const auto& [row, name] : devices) {
    DeviceTimeline& device =
        step.devices.emplace_back(DeviceTimeline{.device = several ? text("process ", row.first, ", ", name) : name});
    for (const Event& event : traces.events)
      if (event.row == row && event.end > begin && event.begin < end)
        device.spans.push_back({std::max(event.begin, begin) - begin, std::min(event.end, end) - begin, event.name});
  }
  return step;
}

bool is_pass(const std::string& phase) {
  return phase == "forward" || phase == "backward";
}

}  // namespace

double TracedStep::bubble() const {
  double passes = 0, idle = 0;
  for (const auto& device : devices)
    for (const auto& span : device.spans)
      if (is_pass(span.phase)) passes = std::max(passes, span.end);
  for (const auto& device : devices) {
    idle += passes;
    for (const auto& span : device.spans)
      if (span.begin < passes) idle -= std::min(span.end, passes) - span.begin;
  }
  const double whole = seconds * static_cast<double>(devices.size());
  return whole > 0 ? idle / whole : 0;
}

double TracedStep::idle() const {
  return 1 - share_of("");
}

double TracedStep::share_of(const std::string& phase) const {
  double sum = 0;
  for (const auto& device : devices)
    for (const auto& span : device.spans)
      if (phase.empty() || span.phase == phase) sum += span.end - span.begin;
  const double whole = seconds * static_cast<double>(devices.size());
  return whole > 0 ? sum / whole : 0;
}

std::vector<TracedStep> read_traces(const std::filesystem::path& folder) {
  Traces traces;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("trace.")) read(traces, entry.path());
  std::vector<TracedStep> steps;
  for (auto step = traces.begins.begin(); step != traces.begins.end(); ++step)
    if (const auto next = std::next(step); next != traces.begins.end() && step->first >= warm_up_steps)
      steps.push_back(step_of(traces, step->second, next->second));
  return steps;
}

}  // namespace lockstep::trials
