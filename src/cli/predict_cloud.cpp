// SPDX-License-Identifier: Apache-2.0
#include "cli/predict_cloud.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"
#include "lockstep/data/ply.h"
#include "lockstep/report/cloud_view.h"
#include "lockstep/report/files.h"
#include "lockstep/report/image.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The class of each point: that of its voxel.
std::vector<int64_t> labels_of(const data::Cloud& cloud, models::Classifier& network, double voxel) {
  const data::Voxels voxels = data::voxelise(cloud, voxel);
  const auto entries = at::zeros({voxels.coordinates.size(0), 1}, at::kInt);
  const sparse::SparseTensor x(voxels.features, at::cat({entries, voxels.coordinates}, 1));
  const auto classes = network.forward(x).argmax(1).contiguous();
  const auto* of_voxel = classes.const_data_ptr<int64_t>();
  std::vector<int64_t> labels;
  for (const int64_t row : voxels.voxel_of_point) labels.push_back(of_voxel[row]);
  return labels;
}

Json describe(const std::string& file, const std::vector<int64_t>& labels, const std::vector<int64_t>& truth,
              const data::DatasetInfo& info) {
  std::vector<int64_t> counts(info.classes, 0);
  int64_t right = 0, known = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    ++counts[labels[i]];
    if (truth.empty() || truth[i] < 0) continue;
    ++known;
    right += truth[i] == labels[i] ? 1 : 0;
  }
  Json out{{"file", file}, {"points", labels.size()}};
  for (int64_t c = 0; c < info.classes; ++c) out["classes"][info.class_names[c]] = counts[c];
  if (known > 0) out["accuracy"] = static_cast<double>(right) / static_cast<double>(known);
  return out;
}

}  // namespace

Json predict_cloud(const std::string& file, models::Classifier& network, const data::DatasetInfo& info,
                   const std::string& out, const std::string& png) {
  data::Cloud cloud = data::cloud_of(data::read_ply(file), file);
  require(info.input_shape[0] == cloud.channels, "predict", "'", file, "' has points with ", cloud.channels,
          " features, expected ", info.input_shape[0], ", which the network takes");
  const auto labels = labels_of(cloud, network, info.voxel);
  const Json answer = describe(file, labels, cloud.labels, info);
  std::vector<report::Rgb> colours;
  for (const int64_t label : labels) colours.push_back(report::class_colour(label));
  if (!out.empty()) {
    cloud.labels = labels;
    for (size_t i = 0; i < colours.size(); ++i)
      for (size_t c = 0; c < 3; ++c) cloud.features[3 * i + c] = static_cast<float>(colours[i][c]) / 255;
    data::write_ply(out, data::ply_of(cloud));
  }
  if (!png.empty())
    report::write_file_atomically(png, report::encode_png(report::draw_cloud(cloud.points, colours, info.voxel / 2)));
  return answer;
}

}  // namespace lockstep::cli
