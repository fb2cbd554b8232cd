// SPDX-License-Identifier: Apache-2.0
// ScanNet v2: a mesh with colours a scan, and another of the same vertices whose labels are ids of NYU40.
#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "data/clouds/formats/cloud_format.h"
#include "data/clouds/scene_files.h"
#include "lockstep/data/ply.h"
#include "lockstep/data/registry.h"

namespace lockstep::data {
namespace {

constexpr const char* kMeshSuffix = "_vh_clean_2.ply";
constexpr int64_t kMostId = 40;
constexpr std::array<int64_t, 2> kStrayIds{50, 149};  // no id of NYU40, but in scene0270_00, scene0270_02, scene0384_00
constexpr int64_t kScanNetPointBytes = 42;            // a vertex and its two triangles

struct Class {
  int64_t id;  // of NYU40
  const char* name;
};
constexpr std::array<Class, 20> kScanNetClasses{
    {{1, "wall"},    {2, "floor"},      {3, "cabinet"},       {4, "bed"},
     {5, "chair"},   {6, "sofa"},       {7, "table"},         {8, "door"},
     {9, "window"},  {10, "bookshelf"}, {11, "picture"},      {12, "counter"},
     {14, "desk"},   {16, "curtain"},   {24, "refrigerator"}, {28, "shower curtain"},
     {33, "toilet"}, {34, "sink"},      {36, "bathtub"},      {39, "other furniture"}}};

int64_t class_of(int64_t id) {
  const auto found = std::ranges::find(kScanNetClasses, id, &Class::id);
  return found == kScanNetClasses.end() ? kIgnore : found - kScanNetClasses.begin();
}

Cloud read_scene(std::span<const fs::path> files) {
  const std::string name = files[0].string(), labels_name = files[1].string();
  Cloud cloud = cloud_of(read_ply(name), name);
  cloud.labels = cloud_of(read_ply(labels_name), labels_name).labels;
  require(std::ssize(cloud.labels) == cloud.size(), "open_dataset", labels_name, " has ", cloud.labels.size(),
          " labels, expected ", cloud.size(), ", one for each vertex of ", name);
  for (int64_t i = 0; i < cloud.size(); ++i) {
    const int64_t id = cloud.labels[i];
    const bool known = (0 <= id && id <= kMostId) || std::ranges::count(kStrayIds, id) > 0;
    require(known, "open_dataset", labels_name, ", vertex ", i, ": the label is ", id,
            ", expected an id of NYU40, 0 to ", kMostId);
    cloud.labels[i] = class_of(id);
  }
  return cloud;
}

/// The names in a list, which stand one a line.
std::vector<std::string> names_in(const fs::path& list) {
  std::ifstream in(list);
  std::vector<std::string> names;
  for (std::string name; in >> name;) names.push_back(name);
  require(!names.empty(), "open_dataset", list.string(), " is empty, expected names of scenes, one a line");
  return names;
}

/// Without a list every fifth room is for validation; scans of one room, scene0007_00 and _01, stay together.
std::vector<std::string> names_by_room(const fs::path& folder, Subset subset) {
  std::vector<std::string> names;
  for (const fs::path& path : sorted_folders(folder)) {
    const std::string name = path.filename().string();
    int64_t room = 0;
    if (name.size() < 9 || !name.starts_with("scene") ||
        std::from_chars(name.data() + 5, name.data() + 9, room).ptr != name.data() + 9)
      continue;
    if ((room % 5 == 0) == (subset == Subset::test)) names.push_back(name);
  }
  require(!names.empty(), "open_dataset", folder.string(), " has no scenes for ", to_string(subset),
          ", expected folders such as scene0000_00, or a list of them in scannetv2_train.txt and scannetv2_val.txt");
  return names;
}

DatasetPointer open_scannet(const fs::path& path, Subset subset, const DatasetOptions& options) {
  require_folder(path);
  std::error_code ignored;
  const fs::path folder = fs::is_directory(path / "scans", ignored) ? path / "scans" : path;
  const fs::path list = path / (subset == Subset::train ? "scannetv2_train.txt" : "scannetv2_val.txt");
  const auto names = fs::exists(list, ignored) ? names_in(list) : names_by_room(folder, subset);
  std::vector<SceneFiles> scenes;
  for (const std::string& name : names) {
    const std::string stem = (folder / name / name).string();
    const fs::path mesh = require_file(stem + kMeshSuffix, "the mesh of a scene");
    scenes.push_back({{mesh, require_file(stem + "_vh_clean_2.labels.ply", "the labels of its vertices")},
                      points_in(mesh, kScanNetPointBytes)});
  }
  DatasetInfo info{
      .name = "scannet", .input_shape = {3}, .classes = std::ssize(kScanNetClasses), .voxel = options.voxel};
  for (const Class& one : kScanNetClasses) info.class_names.emplace_back(one.name);
  return make_scenes(std::move(info), std::move(scenes),
                     [](int64_t, std::span<const fs::path> files) { return read_scene(files); });
}

}  // namespace

DatasetKind scannet_kind() {
  return {.name = "scannet",
          .usage = "scannet:FOLDER",
          .description = "ScanNet v2: scans/SCENE/SCENE_vh_clean_2.ply and .labels.ply; 20 classes",
          .clouds = true,
          .open = open_scannet};
}

CloudFormat scannet_format() {
  return {.cloud_suffix = kMeshSuffix, .label_of = [](int64_t known) { return kScanNetClasses[known].id; }};
}

}  // namespace lockstep::data
