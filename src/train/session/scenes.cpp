// SPDX-License-Identifier: Apache-2.0
#include "train/session/scenes.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/data/loader.h"
#include "lockstep/numerics/random.h"
#include "lockstep/pictures/image.h"
#include "train/input.h"

namespace lockstep::train {
namespace {

constexpr int64_t kScenes = 4, kVoxels = 6000;
constexpr uint64_t kStream = 0x7363656E6573;  // "scenes": nothing else draws from these numbers

/// Rows of a tensor of bytes, or of 16-bit numbers, as they lie in memory.
template <class Row>
std::vector<Row> rows_of(const at::Tensor& tensor) {
  const auto contiguous = tensor.contiguous();
  std::vector<Row> rows(contiguous.nbytes() / sizeof(Row));
  if (!rows.empty()) std::memcpy(rows.data(), contiguous.const_data_ptr(), contiguous.nbytes());
  return rows;
}

run::Scene scene_of(const data::Batch& batch, const at::Tensor& predictions) {
  const int64_t size = batch.targets.size(0), count = std::min(size, kVoxels);
  run::Scene scene{.id = batch.ids[0].item<int64_t>()};
  if (count == 0) return scene;
  // Which voxels stay follows from the scene's number; they keep their order.
  const RandomKey key{static_cast<uint64_t>(scene.id), kStream};
  const at::Tensor kept = std::get<0>(permutation_(at::empty({count}, at::kLong), key, size).sort());
  const auto of_kept = [&](const at::Tensor& all) { return all.index_select(0, kept); };

  at::Tensor voxels = of_kept(batch.coordinates.slice(1, 1));
  voxels = voxels - std::get<0>(voxels.min(0));
  const int64_t step = voxels.max().item<int64_t>() / 65536 + 1;  // a scene may be wider than 16 bits
  scene.voxels = rows_of<std::array<uint16_t, 3>>(voxels.floor_divide(step).to(at::kUInt16));
  // Voxels are those of surfaces: where one of four stays, it is drawn twice as wide.
  scene.mark = std::sqrt(static_cast<double>(size) / static_cast<double>(count)) / static_cast<double>(step);

  const at::Tensor labels = of_kept(batch.targets);
  scene.labels = rows_of<uint8_t>(labels.masked_fill(labels.lt(0), run::Scene::kUnknown).to(at::kByte));
  scene.predictions = rows_of<uint8_t>(of_kept(predictions).to(at::kByte));
  if (batch.inputs.size(1) == 3)
    scene.colours = rows_of<pictures::Rgb>(of_kept(batch.inputs).clamp(0, 1).mul(255).round().to(at::kByte));
  return scene;
}

}  // namespace

run::Scenes scenes_of(const Plan& plan, models::Classifier& network, c10::Device device) {
  const auto& test = plan.task.test;
  run::Scenes out{.classes = test->info().class_names};
  if (out.classes.size() > run::Scene::kUnknown) return {};
  const int64_t count = std::min(kScenes, test->size());
  data::Loader loader(data::first_of(test, count), data::Order::sequential(count),
                      {.batch = 1, .transforms = plan.transforms.deterministic(), .workers = 0});
  for (int64_t i = 0; i < count; ++i) {
    const data::Batch batch = loader.next();
    const at::Tensor logits = network.forward(input_of(batch, device));
    if (logits.size(0) != batch.targets.size(0)) return {};
    out.scenes.push_back(scene_of(batch, logits.argmax(1).cpu()));
  }
  return out;
}

}  // namespace lockstep::train
