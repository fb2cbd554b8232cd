// SPDX-License-Identifier: Apache-2.0
// nuScenes with lidarseg: scans of five floats a point, labels of one byte. Which labels are of which scan, and of
// which scene a scan is, stands in tables alone: lidarseg -> sample_data -> sample -> scene.
#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "data/clouds/formats/cloud_format.h"
#include "data/clouds/formats/json_table.h"
#include "data/clouds/scene_files.h"
#include "lockstep/data/registry.h"

namespace lockstep::data {
namespace {

constexpr std::array<const char*, 16> kNuScenesClasses{
    "barrier",    "bicycle",      "bus",     "car",       "construction vehicle", "motorcycle",
    "pedestrian", "traffic cone", "trailer", "truck",     "driveable surface",    "other flat",
    "sidewalk",   "terrain",      "manmade", "vegetation"};

/// The benchmark's class of each of lidarseg's 32 labels; kIgnore for what it leaves out.
constexpr std::array<int64_t, 32> kClassOf{
    kIgnore, kIgnore, 6,       6, 6, kIgnore, 6,  kIgnore, kIgnore, 0,  kIgnore, kIgnore, 7,  kIgnore, 1, 2, 2, 3,
    4,       kIgnore, kIgnore, 5, 8, 9,       10, 11,      12,      13, 14,      kIgnore, 15, kIgnore};

std::optional<int64_t> nuscenes_class(uint32_t label) {
  if (label >= kClassOf.size()) return std::nullopt;
  return kClassOf[label];
}

constexpr ScanFormat kNuScenesScan{
    .suffix = ".pcd.bin", .floats = 5, .brightest = 255, .label_bytes = 1, .class_of = nuscenes_class};

/// The 150 of trainval's scenes that are for validation: first and last of each run of numbers.
constexpr std::array<std::pair<int, int>, 16> kNuScenesValidation{{{3, 3},
                                                                   {12, 18},
                                                                   {35, 39},
                                                                   {92, 110},
                                                                   {221, 221},
                                                                   {268, 278},
                                                                   {329, 332},
                                                                   {344, 346},
                                                                   {519, 524},
                                                                   {552, 565},
                                                                   {625, 638},
                                                                   {770, 784},
                                                                   {794, 802},
                                                                   {904, 931},
                                                                   {962, 972},
                                                                   {1059, 1073}}};
constexpr std::array<int, 2> kMiniValidation{103, 916};

/// Whether a scene, "scene-0103", is for validation.
bool validates(const std::string& scene, bool mini, const fs::path& table) {
  int number = 0;
  const char* end = scene.data() + scene.size();
  require(scene.starts_with("scene-") && std::from_chars(scene.data() + 6, end, number).ptr == end, "open_dataset",
          table.string(), " has the scene '", scene, "', expected a name such as scene-0103");
  if (mini) return std::ranges::count(kMiniValidation, number) > 0;
  return std::ranges::any_of(kNuScenesValidation,
                             [&](const auto& run) { return run.first <= number && number <= run.second; });
}

using Names = std::unordered_map<std::string, std::string>;

/// A table from one name to another.
Names read_map(const fs::path& table, const char* from, const char* to) {
  Names map;
  read_json_table(table, {from, to}, [&](std::span<const std::string> row) { map[row[0]] = row[1]; });
  return map;
}

const std::string& look_up(const Names& map, const std::string& token, const fs::path& table) {
  const auto found = map.find(token);
  require(found != map.end(), "open_dataset", table.string(), " has no '", token, "', expected what other tables name");
  return found->second;
}

struct Scan {
  std::string points, labels, sample;
};

/// All scans with labels, in the order of their files' names.
std::vector<Scan> read_scans(const fs::path& tables) {
  const auto labels = read_map(tables / "lidarseg.json", "sample_data_token", "filename");
  std::vector<Scan> scans;
  read_json_table(tables / "sample_data.json", {"token", "sample_token", "filename"},
                  [&](std::span<const std::string> row) {
                    const auto found = labels.find(row[0]);
                    if (found != labels.end()) scans.push_back({row[2], found->second, row[1]});
                  });
  require(scans.size() == labels.size(), "open_dataset", (tables / "sample_data.json").string(), " has ", scans.size(),
          " of the ", labels.size(), " scans that lidarseg.json names, expected all");
  std::ranges::sort(scans, {}, &Scan::points);
  return scans;
}

DatasetPointer open_nuscenes(const fs::path& path, Subset subset, const DatasetOptions& options) {
  require_folder(path);
  std::error_code ignored;
  const bool mini = !fs::is_directory(path / "v1.0-trainval", ignored);
  const fs::path tables = path / (mini ? "v1.0-mini" : "v1.0-trainval");
  require_folder(tables);
  const auto scene_of = read_map(tables / "sample.json", "token", "scene_token");
  const auto name_of_scene = read_map(tables / "scene.json", "token", "name");
  std::vector<SceneFiles> scenes;
  for (const Scan& scan : read_scans(tables)) {
    const std::string& scene = look_up(scene_of, scan.sample, tables / "sample.json");
    const std::string& name = look_up(name_of_scene, scene, tables / "scene.json");
    if (validates(name, mini, tables / "scene.json") != (subset == Subset::test)) continue;
    const fs::path points = require_file(path / scan.points, "a scan");
    scenes.push_back({{points, require_file(path / scan.labels, "the labels of a scan")},
                      points_in(points, kNuScenesScan.floats * sizeof(float))});
  }
  require(!scenes.empty(), "open_dataset", tables.string(), " has no scans for ", to_string(subset),
          ", expected some with labels in lidarseg.json");
  DatasetInfo info{.name = "nuscenes",
                   .input_shape = {1},
                   .classes = std::ssize(kNuScenesClasses),
                   .class_names = {kNuScenesClasses.begin(), kNuScenesClasses.end()},
                   .voxel = options.voxel};
  return make_scenes(std::move(info), std::move(scenes),
                     [](int64_t, std::span<const fs::path> files) { return read_scan(files, kNuScenesScan); });
}

}  // namespace

DatasetKind nuscenes_kind() {
  return {.name = "nuscenes",
          .usage = "nuscenes:FOLDER",
          .description = "with lidarseg and the tables of v1.0-trainval or v1.0-mini; 16 classes",
          .clouds = true,
          .open = open_nuscenes};
}

/// Predictions are handed in as classes from 1 on, not as the 32 labels.
CloudFormat nuscenes_format() {
  return {
      .cloud_suffix = kNuScenesScan.suffix,
      .label_suffix = "_lidarseg.bin",
      .read = [](const std::string& file, const DatasetInfo&) { return read_scan_without_labels(file, kNuScenesScan); },
      .label_bytes = kNuScenesScan.label_bytes,
      .label_of = [](int64_t known) { return known + 1; }};
}

}  // namespace lockstep::data
