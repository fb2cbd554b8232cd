// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/detail/file.h"
#include "lockstep/run/detail/json.h"
#include "run/phases.h"

namespace lockstep::run {
namespace {

// Calls `take(line, its number, offset of its end)` for every line that has its newline.
template <class Take>
void for_each_line(std::string_view text, Take take) {
  int number = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    std::string_view line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!take(line, ++number, end + 1)) return;
  }
}

std::string place(const std::filesystem::path& file, int line) {
  return text(file.string(), ":", line);
}

// How many bytes of a file a run keeps that goes on after `step`.
size_t kept_bytes(std::string_view contents, const std::filesystem::path& file, int64_t step) {
  size_t kept = 0;
  for_each_line(contents, [&](std::string_view line, int number, size_t end) {
    if (!line.empty() && parse_metrics(line, place(file, number)).step.value_or(0) > step) return false;
    kept = end;
    return true;
  });
  return kept;
}

}  // namespace

std::optional<double> mean_pace(std::span<const Metrics> lines) {
  double steps = 0, steps_by_pace = 0;
  int64_t before = 0;
  for (const Metrics& line : lines) {
    if (line.subset != data::Subset::train || !line.step) continue;
    const auto taken = static_cast<double>(*line.step - std::exchange(before, *line.step));
    const double pace = line.examples_per_second.value_or(0);
    if (!(taken > 0 && pace > 0)) continue;
    steps += taken;
    steps_by_pace += taken / pace;
  }
  return steps > 0 ? std::optional(steps / steps_by_pace) : std::nullopt;
}

Json phases_to_json(const Phases& phases) {
  Json json = Json::object();
  for (const auto& [name, member] : phase_members) json[name] = finite(phases.*member);
  return json;
}

Phases phases_from_json(const JsonObject& object) {
  Phases phases;
  for (const auto& [name, member] : phase_members) phases.*member = object.number(name).value_or(0);
  return phases;
}

std::string to_json(const Metrics& metrics) {
  Json json = Json::object();
  put(json, "step", metrics.step);
  put(json, "epoch", metrics.epoch);
  json["split"] = to_string(metrics.subset);
  put(json, "loss", metrics.loss);
  put(json, "accuracy", metrics.accuracy);
  put(json, "mean_iou", metrics.mean_iou);
  for (const double iou : metrics.class_iou) json["class_iou"].push_back(finite(iou));
  json["seconds"] = finite(metrics.seconds);
  put(json, "lr", metrics.lr);
  put(json, "examples_per_second", metrics.examples_per_second);
  if (metrics.phases) json["phases"] = phases_to_json(*metrics.phases);
  put(json, "gradient_norm", metrics.gradient_norm);
  put(json, "replicas", metrics.replicas);
  put(json, "devices", metrics.devices);
  if (!metrics.event.empty()) json["event"] = metrics.event;
  return dump_json(json, -1);
}

Metrics parse_metrics(std::string_view line, const std::string& where) {
  const Json json = parse_json("read_metrics", line, where);
  const JsonObject object(json, "read_metrics", where);
  Metrics metrics;
  metrics.step = object.integer("step");
  metrics.epoch = object.number("epoch");
  if (!metrics.step && !metrics.epoch) object.wrong("has neither 'step' nor 'epoch', expected at least one");
  const auto subset = object.string("split");
  if (subset != "train" && subset != "test")
    object.wrong("'split' is ", subset ? "'" + *subset + "'" : "missing", ", expected 'train' or 'test'");
  metrics.subset = subset == "train" ? data::Subset::train : data::Subset::test;
  const auto seconds = object.number("seconds");
  if (!seconds) object.wrong("'seconds' is missing, expected the time since the run's start");
  metrics.seconds = *seconds;
  metrics.loss = object.number("loss");
  metrics.accuracy = object.number("accuracy");
  metrics.mean_iou = object.number("mean_iou");
  metrics.class_iou = object.numbers("class_iou");
  metrics.lr = object.number("lr");
  metrics.examples_per_second = object.number("examples_per_second");
  metrics.gradient_norm = object.number("gradient_norm");
  if (const auto replicas = object.integer("replicas")) metrics.replicas = to_int(object, "replicas", *replicas);
  if (const auto devices = object.integer("devices")) metrics.devices = to_int(object, "devices", *devices);
  metrics.event = object.string("event").value_or("");
  if (const Json* phases = object.object("phases"))
    metrics.phases = phases_from_json(JsonObject(*phases, "read_metrics", where + ": phases"));
  return metrics;
}

std::vector<Metrics> read_metrics(const std::filesystem::path& file) {
  const std::string contents = read_file(file);
  std::vector<Metrics> all;
  for_each_line(contents, [&](std::string_view line, int number, size_t) {
    if (!line.empty()) all.push_back(parse_metrics(line, place(file, number)));
    return true;
  });
  return all;
}

MetricsWriter::MetricsWriter(std::filesystem::path file, int flags)
    : file_(std::move(file)), out_(open(file_.c_str(), flags | O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  require(static_cast<bool>(out_), "MetricsWriter", file_, ": ", std::strerror(errno));
}

MetricsWriter MetricsWriter::create(const std::filesystem::path& file) {
  return {file, O_TRUNC};
}

MetricsWriter MetricsWriter::resume(const std::filesystem::path& file, int64_t step) {
  const std::string contents = std::filesystem::exists(file) ? read_file(file) : "";
  const size_t kept = kept_bytes(contents, file, step);
  MetricsWriter writer(file, 0);
  require(kept == contents.size() || ftruncate(writer.out_.get(), static_cast<off_t>(kept)) == 0, "MetricsWriter", file,
          ": ", std::strerror(errno));
  return writer;
}

void MetricsWriter::append(const Metrics& metrics) {
  const off_t before = lseek(out_.get(), 0, SEEK_END);
  if (write_all(out_.get(), to_json(metrics) + "\n")) return;
  const int error = errno;
  if (before >= 0 && ftruncate(out_.get(), before) != 0) {
    // The half line stays; readers skip it, and a resumed run cuts it off.
  }
  fail("MetricsWriter", file_, ": ", std::strerror(error));
}

}  // namespace lockstep::run
