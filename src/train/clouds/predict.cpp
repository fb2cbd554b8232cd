// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "lockstep/data/cloud_files.h"
#include "lockstep/data/ply.h"
#include "lockstep/pictures/png.h"
#include "lockstep/report/cloud_view.h"
#include "train/predict/parts.h"

namespace lockstep::train {
namespace {

using pictures::Rgb;

/// The network's logits, of each voxel or of the whole.
at::Tensor logits_of(const data::Voxels& voxels, const Trained& trained) {
  const auto entries = at::zeros({voxels.coordinates.size(0), 1}, at::kInt);
  const auto coordinates = at::cat({entries, voxels.coordinates}, 1).to(trained.device);
  return trained.network.forward(sparse::SparseTensor(voxels.features.to(trained.device), coordinates)).cpu();
}

/// The class of each point: that of its voxel.
std::vector<int64_t> labels_of(const data::Voxels& voxels, const Trained& trained) {
  const auto classes = logits_of(voxels, trained).argmax(1).contiguous();
  const auto* of_voxel = classes.const_data_ptr<int64_t>();
  std::vector<int64_t> labels;
  for (const int64_t row : voxels.voxel_of_point) labels.push_back(of_voxel[row]);
  return labels;
}

Prediction describe(const std::vector<int64_t>& labels, const std::vector<int64_t>& truth,
                    const data::DatasetInfo& info) {
  std::vector<int64_t> counts(info.classes, 0);
  int64_t right = 0, known = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    ++counts[labels[i]];
    if (truth.empty() || truth[i] < 0) continue;
    ++known;
    right += truth[i] == labels[i] ? 1 : 0;
  }
  Prediction out;
  for (int64_t c = 0; c < info.classes; ++c) out.classes.emplace_back(info.class_names[c], counts[c]);
  if (known > 0) out.accuracy = static_cast<double>(right) / static_cast<double>(known);
  return out;
}

/// What a PLY file has besides (faces, normals, more digits) stays as it is.
void write_labelled(const std::string& file, const data::Cloud& cloud, const std::vector<int64_t>& labels,
                    const std::vector<Rgb>& colours, const std::string& out) {
  data::Cloud coloured{.points = cloud.points};
  for (const Rgb& colour : colours)
    for (const uint8_t c : colour) coloured.features.push_back(static_cast<float>(c) / 255);
  data::Ply ply = data::ply_of(coloured);
  ply.find("vertex")->set({.name = "label", .type = data::PlyType::int32, .values = {labels.begin(), labels.end()}});
  if (file.ends_with(".ply")) {
    data::Ply whole = data::read_ply(file);
    for (const char* name : {"red", "green", "blue", "label"})
      whole.find("vertex")->set(*ply.find("vertex")->find(name));
    ply = std::move(whole);
  }
  data::write_ply(out, ply);
}

void draw(const std::string& file, const data::Cloud& cloud, const std::vector<Rgb>& colours, double side,
          report::Shown shown) {
  if (file.empty()) return;
  constexpr int kHeight = 480;
  const auto image = report::draw_cloud(cloud.points, colours, side, kHeight, shown);
  write_file(file, pictures::encode_png(image));
}

/// A colour for all points, darker towards the ground: so that one sees a shape, not a shadow.
std::vector<Rgb> shaded(const data::Cloud& cloud, const Rgb& colour) {
  const auto height = [](const data::Point& point) { return point[2]; };
  const auto [lowest, highest] = std::ranges::minmax(cloud.points, {}, height);
  const float low = height(lowest), high = height(highest);
  std::vector<Rgb> out;
  for (const auto& point : cloud.points) {
    const float light = 0.35F + 0.65F * (point[2] - low) / std::max(high - low, 1e-6F);
    Rgb& shade = out.emplace_back();
    std::ranges::transform(colour, shade.begin(), [&](uint8_t c) { return static_cast<uint8_t>(light * c); });
  }
  return out;
}

Prediction label_points(const std::string& file, const data::Cloud& cloud, const data::Voxels& voxels,
                        const Trained& trained, const PredictOptions& options) {
  const auto labels = labels_of(voxels, trained);
  std::vector<Rgb> colours;
  for (const int64_t label : labels) colours.push_back(report::class_colour(label));
  if (!options.out.empty()) write_labelled(file, cloud, labels, colours, options.out);
  if (!options.labels.empty()) write_file(options.labels, data::label_file(labels, trained.data));
  draw(options.png, cloud, colours, trained.data.voxel / 2, report::Shown::room);
  return describe(labels, cloud.labels, trained.data);
}

Prediction classify(const data::Cloud& cloud, const data::Voxels& voxels, const Trained& trained,
                    const PredictOptions& options) {
  const auto& info = trained.data;
  const at::Tensor logits = logits_of(voxels, trained);
  draw(options.png, cloud, shaded(cloud, report::class_colour(logits[0].argmax().item<int64_t>())), info.voxel / 2,
       report::Shown::whole);
  return {.likeliest = likeliest(logits[0], info, options.top)};
}

data::Voxels voxelise(const data::Cloud& cloud, double voxel, const std::string& file) {
  try {
    return data::voxelise(cloud, voxel);
  } catch (const Error& error) {
    fail("predict", "'", file, "': ", error.what());
  }
}

}  // namespace

std::vector<Prediction> predict_cloud(const std::string& file, const Trained& trained, const PredictOptions& options) {
  const auto& info = trained.data;
  const data::Cloud cloud = data::read_cloud_file(file, info);
  require(info.segments() || cloud.size() > 0, "predict", "'", file, "' has no points, expected some to classify");
  const data::Voxels voxels = voxelise(cloud, info.voxel, file);
  Prediction answer =
      info.segments() ? label_points(file, cloud, voxels, trained, options) : classify(cloud, voxels, trained, options);
  answer.file = file;
  answer.points = cloud.size();
  return {std::move(answer)};
}

}  // namespace lockstep::train
