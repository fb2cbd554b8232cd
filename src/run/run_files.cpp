// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_files.h"
#include "lockstep/base/detail/base64.h"
#include "lockstep/pictures/png.h"

#include <algorithm>
#include <array>
#include <map>

#include "lockstep/base/detail/atomic_file.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/run/detail/json.h"
#include "run/phases.h"

namespace lockstep::run {

bool Folder::holds_run() const {
  return std::ranges::any_of(std::array{metrics(), checkpoint(), weights()},
                             [](const auto& file) { return std::filesystem::exists(file); });
}

void Folder::remove_run() const {
  for (const auto& file :
       {metrics(), checkpoint(), previous_checkpoint(), weights(), safetensors(), config(), summary(), confusion(),
        samples(), scenes(), curves_svg(), curves_png(), report(), tensorboard()}) {
    std::filesystem::remove_all(file);
    std::filesystem::remove(partial_name(file));
  }
}

namespace {

Json speedup_to_json(const SpeedupRow& row) {
  Json json{{"devices", row.devices},
            {"batch", row.batch},
            {"seconds_per_step", finite(row.seconds_per_step)},
            {"speedup", finite(row.speedup)}};
  if (row.apart) json["apart"] = finite(*row.apart);
  if (row.phases) json["phases"] = phases_to_json(*row.phases);
  return json;
}

SpeedupRow speedup_from_json(const JsonObject& object) {
  SpeedupRow row;
  row.devices = to_int(object, "devices", object.integer("devices").value_or(1));
  row.batch = object.integer("batch").value_or(0);
  row.seconds_per_step = object.number("seconds_per_step").value_or(0);
  row.speedup = object.number("speedup").value_or(1);
  row.apart = object.number("apart");
  if (const Json* phases = object.object("phases"))
    row.phases = phases_from_json(JsonObject(*phases, object.operation(), object.where() + ": phases"));
  return row;
}

// Says what is wrong with a confusion matrix; empty when nothing is.
std::string fault(const Confusion& confusion) {
  const size_t size = confusion.classes.size();
  if (confusion.counts.size() != size)
    return text("counts have ", confusion.counts.size(), " rows, expected ", size, ", one a class");
  for (size_t row = 0; row < size; ++row) {
    if (confusion.counts[row].size() != size)
      return text("row ", row, " has ", confusion.counts[row].size(), " counts, expected ", size, ", one a class");
    for (const int64_t count : confusion.counts[row])
      if (count < 0) return text("row ", row, " holds ", count, ", expected counts of at least 0");
  }
  return "";
}

std::string fault(const Samples& samples) {
  const auto outside = [&](int number) {
    return number < 0 || (!samples.classes.empty() && number >= static_cast<int>(samples.classes.size()));
  };
  for (size_t i = 0; i < samples.samples.size(); ++i)
    for (const int number : {samples.samples[i].label, samples.samples[i].prediction})
      if (outside(number))
        return text("sample ", i, " has class ", number, ", expected 0 to ",
                    samples.classes.empty() ? "more" : text(samples.classes.size() - 1));
  return "";
}

void write_json(const std::filesystem::path& file, const Json& json) {
  write_file(file, dump_json(json) + "\n");
}

}  // namespace

void write_summary(const std::filesystem::path& file, const Summary& summary) {
  Json json{{"name", summary.name},           {"model", summary.model},           {"dataset", summary.dataset},
            {"placement", summary.placement}, {"state", summary.state},           {"replicas", summary.replicas},
            {"devices", summary.devices},     {"batch", summary.batch},           {"parameters", summary.parameters},
            {"steps", summary.steps},         {"epochs", finite(summary.epochs)}, {"seconds", finite(summary.seconds)}};
  put(json, "train_loss", summary.train_loss);
  put(json, "train_accuracy", summary.train_accuracy);
  put(json, "test_loss", summary.test_loss);
  put(json, "test_accuracy", summary.test_accuracy);
  put(json, "test_mean_iou", summary.test_mean_iou);
  put(json, "examples_per_second", summary.examples_per_second);
  json["unit"] = summary.unit;
  json["recipe"] = summary.recipe;
  json["hash"] = summary.hash;
  json["fingerprint"] = Json::object();
  for (const auto& [name, value] : summary.fingerprint) json["fingerprint"][name] = value;
  for (const auto& event : summary.events) json["events"].push_back(event);
  if (!summary.forecast.empty()) json["forecast"] = summary.forecast;
  for (const auto& row : summary.speedup) json["speedup"].push_back(speedup_to_json(row));
  write_json(file, json);
}

Summary read_summary(const std::filesystem::path& file) {
  const Json json = parse_json("read_summary", read_file(file), file.string());
  const JsonObject object(json, "read_summary", file.string());
  Summary summary;
  for (const auto& [key, member] : {std::pair{"name", &Summary::name},
                                    {"model", &Summary::model},
                                    {"dataset", &Summary::dataset},
                                    {"placement", &Summary::placement},
                                    {"state", &Summary::state},
                                    {"recipe", &Summary::recipe},
                                    {"hash", &Summary::hash},
                                    {"unit", &Summary::unit},
                                    {"forecast", &Summary::forecast}})
    if (auto value = object.string(key)) summary.*member = *std::move(value);
  for (const auto& [key, member] : {std::pair{"replicas", &Summary::replicas}, {"devices", &Summary::devices}})
    summary.*member = to_int(object, key, object.integer(key).value_or(0));
  for (const auto& [key, member] :
       {std::pair{"batch", &Summary::batch}, {"parameters", &Summary::parameters}, {"steps", &Summary::steps}})
    summary.*member = object.integer(key).value_or(0);
  summary.epochs = object.number("epochs").value_or(0);
  summary.seconds = object.number("seconds").value_or(0);
  for (const auto& [key, member] : {std::pair{"train_loss", &Summary::train_loss},
                                    {"train_accuracy", &Summary::train_accuracy},
                                    {"test_loss", &Summary::test_loss},
                                    {"test_accuracy", &Summary::test_accuracy},
                                    {"test_mean_iou", &Summary::test_mean_iou},
                                    {"examples_per_second", &Summary::examples_per_second}})
    summary.*member = object.number(key);
  if (const Json* items = object.object("fingerprint"))
    for (const auto& [name, value] : items->items()) {
      if (!value.is_string()) object.wrong("fingerprint '", name, "' is no text");
      summary.fingerprint.emplace_back(name, value.get<std::string>());
    }
  summary.events = object.strings("events");
  object.for_each("speedup", [&](const JsonObject& row) { summary.speedup.push_back(speedup_from_json(row)); });
  return summary;
}

void write_confusion(const std::filesystem::path& file, const Confusion& confusion) {
  const std::string wrong = fault(confusion);
  require(wrong.empty(), "write_confusion", file, ": ", wrong);
  write_json(file, {{"classes", confusion.classes}, {"counts", confusion.counts}});
}

Confusion read_confusion(const std::filesystem::path& file) {
  const Json json = parse_json("read_confusion", read_file(file), file.string());
  const JsonObject object(json, "read_confusion", file.string());
  Confusion confusion{object.strings("classes"), {}};
  const Json* counts = object.array("counts");
  if (counts == nullptr) object.wrong("'counts' is missing, expected a row of counts for each class");
  for (const Json& row : *counts) {
    auto& numbers = confusion.counts.emplace_back();
    for (const Json& count : row) {
      if (!count.is_number_integer()) object.wrong("counts hold ", dump_json(count, -1), ", expected whole numbers");
      numbers.push_back(count.get<int64_t>());
    }
  }
  if (const std::string wrong = fault(confusion); !wrong.empty()) object.wrong(wrong);
  return confusion;
}

void write_samples(const std::filesystem::path& file, const Samples& samples) {
  const std::string wrong = fault(samples);
  require(wrong.empty(), "write_samples", file, ": ", wrong);
  Json json{{"classes", samples.classes}, {"samples", Json::array()}};
  for (const auto& sample : samples.samples)
    json["samples"].push_back({{"id", sample.id},
                               {"label", sample.label},
                               {"prediction", sample.prediction},
                               {"probability", finite(sample.probability)},
                               {"png", base64(pictures::encode_png(sample.image))}});
  write_json(file, json);
}

Samples read_samples(const std::filesystem::path& file) {
  const Json json = parse_json("read_samples", read_file(file), file.string());
  const JsonObject object(json, "read_samples", file.string());
  Samples samples{object.strings("classes"), {}};
  object.for_each("samples", [&](const JsonObject& one) {
    Sample sample;
    sample.id = one.integer("id").value_or(0);
    sample.label = to_int(one, "label", one.integer("label").value_or(0));
    sample.prediction = to_int(one, "prediction", one.integer("prediction").value_or(0));
    sample.probability = one.number("probability").value_or(0);
    const auto png = one.string("png");
    if (!png) one.wrong("'png' is missing, expected a picture in base64");
    sample.image = pictures::decode_png(from_base64(*png, one.where()), one.where());
    samples.samples.push_back(std::move(sample));
  });
  if (const std::string wrong = fault(samples); !wrong.empty()) object.wrong(wrong);
  return samples;
}

RunData read_run(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  require(fs::is_directory(folder), "read_run", folder, fs::exists(folder) ? " is a file" : " is not there",
          ", expected the folder of a run, as in 'lockstep report runs/NAME'");
  const Folder files{folder};
  const bool has_metrics = fs::exists(files.metrics()), has_summary = fs::exists(files.summary());
  require(has_metrics || has_summary, "read_run", folder,
          " holds neither metrics.jsonl nor summary.json, expected the folder of a run");
  RunData run;
  if (has_metrics) run.metrics = read_metrics(files.metrics());
  if (has_summary) run.summary = read_summary(files.summary());
  if (fs::exists(files.config())) run.config = read_file(files.config());
  if (fs::exists(files.confusion())) run.confusion = read_confusion(files.confusion());
  if (fs::exists(files.samples())) run.samples = read_samples(files.samples());
  if (fs::exists(files.scenes())) run.scenes = read_scenes(files.scenes());
  if (run.summary) run.name = run.summary->name;
  // "runs/lenet/" has an empty file name; "." has one that says nothing.
  if (run.name.empty()) run.name = fs::weakly_canonical(folder).filename().string();
  return run;
}

std::string pace_units(std::span<const RunData> runs) {
  std::vector<std::string> units;
  for (const RunData& run : runs) {
    const std::string unit = (run.summary ? *run.summary : Summary()).unit + "/s";
    if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
  }
  std::string all;
  for (const std::string& unit : units) all += (all.empty() ? "" : ", ") + unit;
  return all;
}

std::vector<RunData> read_runs(const std::vector<std::filesystem::path>& folders) {
  std::vector<RunData> runs;
  std::map<std::string, int> uses;
  for (const auto& folder : folders) {
    runs.push_back(read_run(folder));
    ++uses[runs.back().name];
  }
  for (size_t r = 0; r < runs.size(); ++r)
    if (uses[runs[r].name] > 1) runs[r].name = folders[r].string();
  return runs;
}

}  // namespace lockstep::run
