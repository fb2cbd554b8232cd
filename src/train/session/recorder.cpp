// SPDX-License-Identifier: Apache-2.0
#include "train/session/recorder.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lockstep/archive/safetensors.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/base/detail/sha256.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/loader.h"
#include "lockstep/pictures/image.h"
#include "lockstep/report/curves.h"
#include "lockstep/report/format.h"
#include "lockstep/report/tensorboard.h"
#include "lockstep/run/weights.h"
#include "train/precision.h"
#include "train/session/scenes.h"
#include "train/session/session.h"
#include "train/session/snapshot.h"

namespace lockstep::train {
namespace {

constexpr int64_t kLinesPerEpoch = 10;
constexpr int64_t kSamples = 24;
constexpr double kSecondsBetweenCurves = 3;  // all replicas wait for a drawing

// What the layers below call a caller's mistake is a full disk here.
template <class Call>
void writing(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    throw TrainingError(text("train: ", error.what()));
  } catch (const std::system_error& error) {
    throw TrainingError(text("train: ", error.what()));
  }
}

pictures::Image image_of(const at::Tensor& input) {
  const auto bytes = input.clamp(0, 1).mul(255).round().to(at::kByte).permute({1, 2, 0}).contiguous();
  const auto* from = bytes.const_data_ptr<uint8_t>();
  return {.width = static_cast<int>(input.size(2)),
          .height = static_cast<int>(input.size(1)),
          .channels = static_cast<int>(input.size(0)),
          .pixels = {from, from + bytes.numel()}};
}

std::string line_of(const EpochReport& report) {
  std::string out = text("epoch ", report.epoch, ":");
  if (report.examples > 0)
    out += text(" train loss ", report::fixed(report.train_loss, 4), ", accuracy ",
                report::fixed(report.train_accuracy, 4));
  if (report.test)
    out += text(report.examples > 0 ? ";" : "", " test loss ", report::fixed(report.test->loss, 4), ", accuracy ",
                report::fixed(report.test->accuracy, 4));
  if (report.test && report.test->mean_iou) out += ", mIoU " + report::fixed(*report.test->mean_iou, 4);
  return out + text(" (", report::duration(report.seconds), ")");
}

// What steps count, as Sums::examples has it.
std::string unit_of(const data::DatasetInfo& info) {
  if (info.segments()) return "voxels";
  if (info.whole_clouds) return "clouds";
  return info.input_shape.size() == 3 ? "images" : "examples";
}

// Clouds and images are examples, voxels are parts of one.
std::string pace_tag(const data::DatasetInfo& info) {
  return info.segments() ? "voxels_per_second" : "examples_per_second";
}

report::ProgressOptions progress_options(const Plan& plan) {
  return {.style = plan.config.quiet ? report::ProgressStyle::quiet : report::ProgressStyle::automatic,
          .unit = unit_of(plan.task.train->info())};
}

// Whether all that decides the result is known: a ring adds in another order in another placement, a program may bring
// an order of examples along, and a resumed run may have begun with fewer epochs.
bool has_one_recipe(const Plan& plan, const std::optional<run::Checkpoint>& start) {
  if (plan.config.reduce == "ring" || plan.task.order) return false;
  if (!start) return true;
  return read_figures(start->extra).one_recipe && run::recipe_toml(config_of(*start)) == run::recipe_toml(plan.config);
}

std::string recipe_hash(const Plan& plan) {
  const std::string recipe = plan.task.model + "\n" + run::recipe_toml(plan.config);
  Sha256 hash;
  hash.update(recipe.data(), recipe.size());
  return hash.hex();
}

run::Summary begin_summary(const Plan& plan, const std::optional<run::Checkpoint>& start) {
  const run::Config& config = plan.config;
  const auto name = std::filesystem::path(config.out).filename().string();
  return {.name = name.empty() ? plan.task.model : name,
          .model = plan.task.model,
          .dataset = plan.task.train->info().name,
          .placement = plan.team.describe(),
          .state = "running",
          .fingerprint = Fingerprint::of(parse_devices(config.devices)[0]).items(),
          .recipe = has_one_recipe(plan, start) ? recipe_hash(plan) : "",
          .replicas = static_cast<int>(config.replicas),
          .devices = static_cast<int>(plan.devices),
          .batch = config.batch,
          .parameters = plan.parameters,
          .unit = unit_of(plan.task.train->info())};
}

}  // namespace

struct Recorder::Files {
  run::Folder folder;
  run::MetricsWriter metrics;
  std::vector<run::Metrics> all;  // for the curves
  std::optional<report::EventWriter> events;
  run::CheckpointWriter checkpoints;
};

Recorder::Recorder(const Plan& plan, const std::optional<run::Checkpoint>& start,
                   std::function<void(const EpochReport&)> on_epoch)
    : plan_(plan),
      on_epoch_(std::move(on_epoch)),
      log_every_(plan.config.log_every > 0 ? plan.config.log_every
                                           : std::max<int64_t>(1, plan.updates_per_epoch / kLinesPerEpoch)),
      progress_(progress_options(plan)),
      summary_(begin_summary(plan, start)) {
  const int64_t step = start ? start->cursor.step : 0;
  if (start) go_on(*start);
  if (plan.config.out.empty()) return;
  writing([&] {
    const run::Folder folder{plan.config.out};
    if (!start && folder.holds_run()) folder.remove_run();
    std::filesystem::create_directories(folder.folder);
    auto metrics =
        start ? run::MetricsWriter::resume(folder.metrics(), step) : run::MetricsWriter::create(folder.metrics());
    auto all = start ? run::read_metrics(folder.metrics()) : std::vector<run::Metrics>{};
    files_.reset(new Files{folder, std::move(metrics), std::move(all), std::nullopt,
                           run::CheckpointWriter(folder.checkpoint())});
    if (plan.config.tensorboard) {
      files_->events.emplace(folder.tensorboard(), start ? std::optional(step + 1) : std::nullopt,
                             pace_tag(plan.task.train->info()));
      files_->events->text("config", step, report::verbatim(run::to_toml(plan.config)));
    }
    write_file(folder.config(), run::to_toml(plan.config));
    run::write_summary(folder.summary(), summary_);
  });
}

Recorder::~Recorder() = default;

// The figures stay those of before until there are new ones.
void Recorder::go_on(const run::Checkpoint& start) {
  const FiguresSoFar figures = read_figures(start.extra);
  seconds_before_ = drawn_at_ = figures.seconds;
  line_began_ = figures.seconds - figures.line_seconds;
  saved_step_ = summary_.steps = start.cursor.step;
  summary_.epochs = plan_.epochs(start.cursor);
  const run::Folder folder{plan_.config.out};
  if (plan_.config.out.empty() || !std::filesystem::exists(folder.summary())) return;
  try {
    const run::Summary before = run::read_summary(folder.summary());
    summary_.events = before.events;
    if (before.steps > start.cursor.step) return;  // what it tells of is trained again
    for (const auto member :
         {&run::Summary::train_loss, &run::Summary::train_accuracy, &run::Summary::test_loss,
          &run::Summary::test_accuracy, &run::Summary::test_mean_iou, &run::Summary::examples_per_second})
      summary_.*member = before.*member;
  } catch (const Error& error) {
    log_warning(error.what(), "; the run goes on with a new one");
  }
}

double Recorder::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

run::Metrics Recorder::metrics_of(data::Subset subset, const run::TrainingCursor& cursor, double epochs) const {
  run::Metrics metrics;
  metrics.step = cursor.step;
  metrics.epoch = epochs;
  metrics.subset = subset;
  metrics.seconds = seconds();
  metrics.replicas = static_cast<int>(plan_.config.replicas);
  metrics.devices = static_cast<int>(plan_.devices);
  return metrics;
}

void Recorder::write(const run::Metrics& metrics) {
  if (files_ == nullptr) return;
  writing([&] {
    files_->metrics.append(metrics);
    if (files_->events) files_->events->metrics(metrics);
  });
  files_->all.push_back(metrics);
}

bool Recorder::holds_test_of(int64_t step) const {
  return files_ != nullptr && std::ranges::any_of(files_->all, [&](const run::Metrics& line) {
           return line.subset == data::Subset::test && line.step == step;
         });
}

void Recorder::draw_curves() {
  if (!plan_.config.curves) return;
  report::write_curves(files_->folder, files_->all);
  drawn_at_ = seconds();
}

bool Recorder::step(const StepReport& report, const Sums& line) {
  summary_.steps = report.cursor.step;
  summary_.epochs = report.epochs;
  if (files_ != nullptr && files_->checkpoints.failed()) finish_saving();
  examples_ += report.examples;
  progress_.update({.step = report.cursor.step,
                    .steps = plan_.updates,
                    .steps_per_epoch = plan_.updates_per_epoch,
                    .examples = examples_,
                    .loss = line.loss / line.examples,
                    .accuracy = line.right / line.examples});
  const bool ended = report.cursor.batch == 0 || report.cursor.step == plan_.updates;
  if (report.cursor.step % log_every_ != 0 && !ended) return false;
  auto metrics = metrics_of(data::Subset::train, report.cursor, report.epochs);
  metrics.loss = line.loss / line.examples;
  metrics.accuracy = line.right / line.examples;
  metrics.lr = report.lr;
  metrics.examples_per_second = line.examples / std::max(1e-9, metrics.seconds - line_began_);
  if (line.steps > 0) metrics.phases = run::Phases(line.phases) /= static_cast<double>(line.steps);
  if (plan_.config.clip > 0) metrics.gradient_norm = report.gradient_norm;
  line_began_ = metrics.seconds;
  summary_.train_loss = metrics.loss;
  summary_.train_accuracy = metrics.accuracy;
  write(metrics);
  return true;
}

void Recorder::epoch(const EpochReport& report) {
  if (report.examples > 0) {
    summary_.train_loss = report.train_loss;
    summary_.train_accuracy = report.train_accuracy;
  }
  if (report.test) {
    auto metrics = metrics_of(data::Subset::test, report.cursor, plan_.epochs(report.cursor));
    metrics.loss = summary_.test_loss = report.test->loss;
    metrics.accuracy = summary_.test_accuracy = report.test->accuracy;
    metrics.mean_iou = summary_.test_mean_iou = report.test->mean_iou;
    metrics.class_iou = report.test->class_iou;
    // A run that had ended, and is resumed, is evaluated again.
    if (!holds_test_of(report.cursor.step)) write(metrics);
  }
  if (files_ != nullptr)
    writing([&] {
      if (seconds() - drawn_at_ >= kSecondsBetweenCurves) draw_curves();
      if (report.test && report.test->confusion.defined()) write_confusion(report.test->confusion);
      write_summary("running");
    });
  progress_.line(line_of(report));
  if (on_epoch_) on_epoch_(report);
  line_began_ = seconds();  // evaluating and drawing are no part of the training's speed
}

void Recorder::write_confusion(const at::Tensor& matrix) const {
  run::Confusion confusion{.classes = plan_.task.train->info().class_names, .counts = {}};
  for (int64_t row = 0; row < matrix.size(0); ++row) {
    const auto* counts = matrix[row].const_data_ptr<int64_t>();
    confusion.counts.emplace_back(counts, counts + matrix.size(1));
  }
  run::write_confusion(files_->folder.confusion(), confusion);
}

void Recorder::write_summary(const std::string& state) {
  summary_.state = state;
  summary_.seconds = seconds();
  if (files_ == nullptr) return;
  if (const auto pace = run::mean_pace(files_->all)) summary_.examples_per_second = pace;
  run::write_summary(files_->folder.summary(), summary_);
}

void Recorder::say(const std::string& line) {
  progress_.line(line);
}

void Recorder::event(const std::string& event) {
  progress_.line(event);
  summary_.events.push_back(event);
  writing([&] { write_summary("running"); });
  auto metrics = metrics_of(data::Subset::train, {.step = summary_.steps}, summary_.epochs);
  metrics.event = event;
  write(metrics);
}

void Recorder::save(run::Checkpoint checkpoint) {
  if (files_ == nullptr) return;
  const int64_t step = checkpoint.cursor.step;
  writing([&] { files_->checkpoints.save(std::move(checkpoint)); });
  saved_step_ = step;
}

void Recorder::finish_saving() {
  if (files_ != nullptr) writing([&] { files_->checkpoints.finish(); });
}

std::string Recorder::kept() {
  if (files_ == nullptr || saved_step_ < 0) return "; no checkpoint had been written yet";
  return text("; ", files_->folder.checkpoint().string(), " holds step ", saved_step_);
}

void Recorder::samples(models::Classifier& network, c10::Device device) {
  if (files_ == nullptr || plan_.task.test == nullptr) return;
  const auto& info = plan_.task.test->info();
  const at::NoGradGuard no_grad;
  const PrecisionScope precision(plan_.precision, device);
  network.eval();
  try {
    if (info.voxel > 0)
      write_scenes(scenes_of(plan_, network, device));
    else if (info.input_shape.size() == 3 && info.target_shape.empty() && info.input_shape[0] <= 4 &&
             info.input_shape[0] != 2)
      write_samples(network, device);
  } catch (const std::exception& error) {
    log_warning("no examples of the test set are written: ", error.what());
  }
  network.train();
}

void Recorder::write_scenes(const run::Scenes& scenes) const {
  if (!scenes.scenes.empty()) writing([&] { run::write_scenes(files_->folder.scenes(), scenes); });
}

void Recorder::write_samples(models::Classifier& network, c10::Device device) const {
  const auto& test = plan_.task.test;
  const int64_t count = std::min(kSamples, test->size());
  data::Loader shown(data::first_of(test, count), data::Order::sequential(count), {.batch = count, .workers = 0});
  data::Loader seen(
      data::first_of(test, count), data::Order::sequential(count),
      {.batch = count, .transforms = plan_.transforms.deterministic(), .layout = plan_.layout, .workers = 0});
  const auto batch = seen.next();
  const auto probabilities = network.forward(batch.inputs.to(device)).to(at::kCPU, at::kFloat).softmax(1);
  const auto images = shown.next();
  run::Samples out{.classes = test->info().class_names};
  for (int64_t k = 0; k < count; ++k) {
    if (batch.targets[k].item<int64_t>() < 0) continue;  // nobody knows what it is
    const auto [best, label] = probabilities[k].max(0);
    out.samples.push_back({.id = batch.ids[k].item<int64_t>(),
                           .image = image_of(images.inputs[k]),
                           .label = static_cast<int>(batch.targets[k].item<int64_t>()),
                           .prediction = static_cast<int>(label.item<int64_t>()),
                           .probability = best.item<double>()});
  }
  writing([&] { run::write_samples(files_->folder.samples(), out); });
}

void Recorder::finish(Outcome& outcome) {
  progress_.finish();
  outcome.seconds = seconds();
  summary_.hash = outcome.hash;
  summary_.steps = outcome.cursor.step;
  summary_.epochs = plan_.epochs(outcome.cursor);
  writing([&] {
    if (files_ == nullptr) return;
    if (outcome.is_whole()) {
      run::write_weights(files_->folder.weights(), outcome.weights);
      if (std::ranges::all_of(outcome.weights,
                              [](const auto& item) { return archive::safetensors_hold(item.second.scalar_type()); }))
        run::write_weights(files_->folder.safetensors(), outcome.weights);
    }
    write_summary(outcome.is_whole() ? "finished" : "interrupted");
    draw_curves();
  });
}

void Recorder::abandon(const std::string& why) noexcept {
  try {
    progress_.finish();
    write_summary("failed: " + why);
    if (files_ != nullptr) draw_curves();
  } catch (const std::exception& error) {  // it may be the disk that is full
    log_warning("the run's summary could not be written: ", error.what());
  }
}

}  // namespace lockstep::train
