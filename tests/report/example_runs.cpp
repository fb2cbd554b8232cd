// SPDX-License-Identifier: Apache-2.0
#include "report/example_runs.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/detail/file.h"
#include "lockstep/pictures/image.h"

namespace lockstep::report {
namespace {

std::vector<std::string> classes() {
  return {"t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"};
}

void add_lines(run::RunData& run) {
  for (int part = 1; part <= 50; ++part) {
    const double epoch = part / 5.;
    run::Metrics line{.step = part * 47, .epoch = epoch, .seconds = part * 0.83};
    const double wave = std::sin(part * 2.3) * std::exp(-part / 30.);
    line.loss = 0.35 + 1.95 * std::exp(-part / 12.) + 0.04 * wave;
    line.accuracy = 0.87 - 0.77 * std::exp(-part / 9.) - 0.01 * wave;
    line.lr = 0.1 * (1 + std::cos(epoch / 10 * 3.14159));
    line.examples_per_second = 14300 + 260 * std::sin(part * 1.1);
    line.gradient_norm = 0.4 + 2 * std::exp(-part / 7.);
    line.phases = run::Phases{0.0002, 0.0051, 0.0089, 0.0006, 0.0011, 0.0009 + 0.0004 * std::sin(part)};
    run.metrics.push_back(line);
    if (part % 5 != 0) continue;
    run.metrics.push_back({.step = part * 47,
                           .epoch = epoch,
                           .subset = data::Subset::test,
                           .loss = *line.loss + 0.05,
                           .accuracy = *line.accuracy - 0.015,
                           .seconds = part * 0.83 + 0.2});
  }
}

run::Confusion example_confusion() {
  run::Confusion confusion{classes(), {}};
  for (int truth = 0; truth < 10; ++truth) {
    auto& row = confusion.counts.emplace_back(10, 0);
    for (int other = 0; other < 10; ++other)
      if (other != truth)
        row[other] = (truth + other) % 3 == 0 ? 7 * ((truth * 5 + other * 3) % 7) : (truth * other) % 4;
    row[truth] = 1000;
    for (int other = 0; other < 10; ++other)
      if (other != truth) row[truth] -= row[other];
  }
  confusion.counts[6][0] += 100;
  confusion.counts[6][6] -= 100;
  return confusion;
}

run::Samples example_samples() {
  run::Samples samples{classes(), {}};
  for (int i = 0; i < 12; ++i) {
    pictures::Image image{28, 28, 1};
    for (int y = 0; y < 28; ++y)
      for (int x = 0; x < 28; ++x) {
        const double distance = std::hypot(x - 13.5, (y - 13.5) * (1 + i % 3 * 0.4));
        const double light = std::min(255.0, 255 - 20 * distance + 4 * (i % 5));
        image.pixels.push_back(static_cast<uint8_t>(distance < 8 + i % 4 ? light : 0));
      }
    samples.samples.push_back({.id = i,
                               .image = std::move(image),
                               .label = i % 10,
                               .prediction = i % 4 == 3 ? (i + 3) % 10 : i % 10,
                               .probability = 0.99 - 0.04 * i});
  }
  return samples;
}

/// A floor, on it a box that is found but for one side.
run::Scene example_scene(int64_t id) {
  run::Scene scene{.id = id, .mark = 1.2};
  const auto add = [&](int x, int y, int z, uint8_t label, uint8_t prediction) {
    scene.voxels.push_back({static_cast<uint16_t>(x), static_cast<uint16_t>(y), static_cast<uint16_t>(z)});
    scene.labels.push_back(label);
    scene.predictions.push_back(prediction);
    scene.colours.push_back({static_cast<uint8_t>(8 * x), static_cast<uint8_t>(8 * y), 120});
  };
  for (int x = 0; x < 30; ++x)
    for (int y = 0; y < 30; ++y) add(x, y, 0, x == 0 ? run::Scene::kUnknown : 0, 0);
  for (int a = 10; a < 20; ++a)
    for (int z = 1; z < 10; ++z) {
      add(a, 10, z, 1, 1);
      add(10, a, z, 1, 0);
    }
  add(0, 0, 20, 1, 1);  // above what is shown at first
  return scene;
}

}  // namespace

run::RunData example_cloud_run(const std::string& name) {
  run::RunData run = example_run(name);
  run.samples = {};
  run.confusion.reset();
  run.summary->unit = "voxels";
  run.scenes = {{"floor", "<b>box</b>"}, {example_scene(0), example_scene(7)}};
  return run;
}

run::RunData example_run(const std::string& name, const std::string& placement, char hash) {
  run::RunData run{.name = name};
  add_lines(run);
  run.config =
      "model = \"lenet\"\ndata = \"fashion-mnist\"\nbatch = 256\nreplicas = 8\nlr = 0.2\nepochs = 10\nseed = 0\n\n"
      "[schedule]\nname = \"cosine\"\nwarmup = 1\n\n[placement]\ndescription = \"" +
      placement + "\"\n";
  run.summary =
      run::Summary{.name = name,
                   .model = "lenet",
                   .dataset = "Fashion-MNIST",
                   .placement = placement,
                   .fingerprint = {{"lockstep", "0.1.0"}, {"torch", "2.11.0"}, {"device", "cpu"}, {"isa", "avx512"}},
                   .recipe = std::string(64, 'e'),
                   .hash = std::string(64, hash),
                   .replicas = 8,
                   .devices = 2,
                   .batch = 256,
                   .parameters = 44426,
                   .steps = 2350,
                   .epochs = 10,
                   .seconds = 41.5,
                   .train_loss = 0.3812,
                   .train_accuracy = 0.8621,
                   .test_loss = 0.4217,
                   .test_accuracy = 0.8475,
                   .examples_per_second = 14312.};
  run.confusion = example_confusion();
  run.samples = example_samples();
  return run;
}

void write_run(const std::filesystem::path& folder, const run::RunData& run) {
  const run::Folder files{folder};
  std::filesystem::create_directories(folder);
  auto writer = run::MetricsWriter::create(files.metrics());
  for (const auto& line : run.metrics) writer.append(line);
  write_file(files.config(), run.config);
  if (run.summary) run::write_summary(files.summary(), *run.summary);
  if (run.confusion) run::write_confusion(files.confusion(), *run.confusion);
  if (!run.samples.samples.empty()) run::write_samples(files.samples(), run.samples);
  if (!run.scenes.scenes.empty()) run::write_scenes(files.scenes(), run.scenes);
}

}  // namespace lockstep::report
