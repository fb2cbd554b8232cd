// SPDX-License-Identifier: Apache-2.0
// SemanticKITTI: sequences of scans; a point is x, y, z and remission, a label 16 bits of class under 16 of instance.
#include <algorithm>
#include <array>

#include "data/clouds/formats/cloud_format.h"
#include "data/clouds/scene_files.h"
#include "lockstep/data/registry.h"

namespace lockstep::data {
namespace {

constexpr std::array<int, 10> kKittiTrain{0, 1, 2, 3, 4, 5, 6, 7, 9, 10};
constexpr std::array<int, 1> kKittiValidation{8};

constexpr std::array<const char*, 19> kKittiClasses{
    "car",          "bicycle", "motorcycle", "truck",    "other vehicle", "person",   "bicyclist",
    "motorcyclist", "road",    "parking",    "sidewalk", "other ground",  "building", "fence",
    "vegetation",   "trunk",   "terrain",    "pole",     "traffic sign"};

/// What a label means to the benchmark: moving things are of the class of their like at rest.
struct Meaning {
  uint32_t label;
  int64_t known;
};
constexpr std::array<Meaning, 34> kMeanings{
    {{0, kIgnore},  {1, kIgnore}, {10, 0},  {11, 1},  {13, 4},  {15, 2},  {16, 4},  {18, 3},       {20, 4},
     {30, 5},       {31, 6},      {32, 7},  {40, 8},  {44, 9},  {48, 10}, {49, 11}, {50, 12},      {51, 13},
     {52, kIgnore}, {60, 8},      {70, 14}, {71, 15}, {72, 16}, {80, 17}, {81, 18}, {99, kIgnore}, {252, 0},
     {253, 6},      {254, 5},     {255, 7}, {256, 4}, {257, 4}, {258, 3}, {259, 4}}};

/// Of those that mean a class the one that its predictions are handed in as.
constexpr std::array<int64_t, kKittiClasses.size()> kKittiLabels{10, 11, 15, 18, 20, 30, 31, 32, 40, 44,
                                                                 48, 49, 50, 51, 70, 71, 72, 80, 81};

std::optional<int64_t> kitti_class(uint32_t label) {
  const auto found = std::ranges::find(kMeanings, label & 0xFFFF, &Meaning::label);
  if (found == kMeanings.end()) return std::nullopt;
  return found->known;
}

constexpr ScanFormat kKittiScan{
    .suffix = ".bin", .floats = 4, .brightest = 1, .label_bytes = 4, .class_of = kitti_class};

void add_sequence(const fs::path& sequence, std::vector<SceneFiles>& scenes) {
  require_folder(sequence / "velodyne");
  for (const fs::path& scan : sorted_files(sequence / "velodyne")) {
    if (scan.extension() != ".bin") continue;
    const fs::path labels = sequence / "labels" / scan.stem();
    scenes.push_back({{scan, require_file(labels.string() + ".label", "the labels of a scan")},
                      points_in(scan, kKittiScan.floats * sizeof(float))});
  }
}

DatasetPointer open_semantic_kitti(const fs::path& path, Subset subset, const DatasetOptions& options) {
  require_folder(path);
  std::error_code ignored;
  const fs::path folder =
      fs::is_directory(path / "dataset", ignored) ? path / "dataset" / "sequences" : path / "sequences";
  require_folder(folder);
  std::vector<SceneFiles> scenes;
  const auto wanted =
      subset == Subset::train ? std::span<const int>(kKittiTrain) : std::span<const int>(kKittiValidation);
  for (const int number : wanted) {
    const fs::path sequence = folder / text(number < 10 ? "0" : "", number);
    if (fs::is_directory(sequence, ignored)) add_sequence(sequence, scenes);
  }
  require(!scenes.empty(), "open_dataset", folder.string(), " has no scans for ", to_string(subset), ", expected ",
          subset == Subset::train ? "00 to 07, 09 and 10" : "08", " with NN/velodyne/*.bin and NN/labels/*.label");
  DatasetInfo info{.name = "semantic-kitti",
                   .input_shape = {1},
                   .classes = std::ssize(kKittiClasses),
                   .class_names = {kKittiClasses.begin(), kKittiClasses.end()},
                   .voxel = options.voxel};
  return make_scenes(std::move(info), std::move(scenes),
                     [](int64_t, std::span<const fs::path> files) { return read_scan(files, kKittiScan); });
}

}  // namespace

DatasetKind semantic_kitti_kind() {
  return {.name = "kitti",
          .usage = "kitti:FOLDER",
          .description = "SemanticKITTI: sequences/NN/velodyne and labels, 08 for validation; 19 classes",
          .clouds = true,
          .open = open_semantic_kitti};
}

CloudFormat semantic_kitti_format() {
  return {
      .cloud_suffix = kKittiScan.suffix,
      .label_suffix = ".label",
      .read = [](const std::string& file, const DatasetInfo&) { return read_scan_without_labels(file, kKittiScan); },
      .label_bytes = kKittiScan.label_bytes,
      .label_of = [](int64_t known) { return kKittiLabels[known]; }};
}

}  // namespace lockstep::data
