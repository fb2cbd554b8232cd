// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/data/ply.h"

// Published data sets of clouds, made small: the layout and the formats of each, with a few points in its files.
namespace lockstep::data::published {

namespace fs = std::filesystem;

inline void write(const fs::path& file, const std::string& contents) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << contents;
}

inline std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The bytes of numbers, as this machine has them: little endian.
template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  std::string out(numbers.size() * sizeof(Number), '\0');
  std::memcpy(out.data(), numbers.data(), out.size());
  return out;
}

/// A scan of ScanNet: vertices on a line, with labels that are ids of NYU40.
inline void scannet_scene(const fs::path& folder, const std::string& name, const std::vector<int64_t>& ids) {
  Cloud cloud;
  for (size_t i = 0; i < ids.size(); ++i) {
    cloud.points.push_back({static_cast<float>(i), 0.5F, 0});
    cloud.features.insert(cloud.features.end(), {1, 0, 0.2F});
  }
  const fs::path stem = folder / name / (name + "_vh_clean_2");
  fs::create_directories(stem.parent_path());
  Ply mesh = ply_of(cloud);
  mesh.elements.push_back({.name = "face", .rows = 1});
  mesh.elements[1].columns = {{.name = "vertex_indices",
                               .type = PlyType::int32,
                               .count_type = PlyType::uint8,
                               .values = {0, 1, 2},
                               .ends = {3}}};
  write_ply(stem.string() + ".ply", mesh);
  cloud.labels = ids;
  Ply labels = ply_of(cloud);
  labels.elements[0].columns.back().type = PlyType::uint16;
  write_ply(stem.string() + ".labels.ply", labels);
}

/// Two rooms to train on, one to validate on; one has two scans.
inline void scannet(const fs::path& folder) {
  scannet_scene(folder / "scans", "scene0001_00", {1, 2, 0, 13, 39});
  scannet_scene(folder / "scans", "scene0001_01", {36, 5, 40});
  scannet_scene(folder / "scans", "scene0007_00", {7, 7, 3});
  scannet_scene(folder / "scans", "scene0010_00", {1, 2, 3, 4});
}

/// Area_1 and Area_2 with a room each, Area_5 with one.
inline void s3dis(const fs::path& folder) {
  write(folder / "Area_1/office_1/Annotations/chair_1.txt", "1.5 2 0.25 255 0 51\n1.5 2.1 0.25 0 0 0\n");
  write(folder / "Area_1/office_1/Annotations/ceiling_1.txt", "1 1 3 255 255 255\r\n2 1 3 255 255 255");
  write(folder / "Area_1/office_1/office_1.txt", "not read\n");
  write(folder / "Area_2/hallway_3/Annotations/stairs_1.txt", "0 0 0 1 2 3\n");
  write(folder / "Area_5/lobby_1/Annotations/board_2.txt", "-1 -2 -3.5e-1 9 9 9\n0 0 0 9 9 9\n");
}

/// A sequence to train on with two scans, and the one to validate on.
inline void kitti(const fs::path& folder) {
  const auto scan = [&](const std::string& sequence, const std::string& name, const std::vector<uint32_t>& labels) {
    std::vector<float> points;
    for (size_t i = 0; i < labels.size(); ++i) points.insert(points.end(), {static_cast<float>(i), -1, 2, 0.25F});
    write(folder / "sequences" / sequence / "velodyne" / (name + ".bin"), bytes_of(points));
    write(folder / "sequences" / sequence / "labels" / (name + ".label"), bytes_of(labels));
  };
  scan("00", "000000", {0, 10, 7U << 16 | 252, 81, 60});
  scan("00", "000001", {40, 70});
  scan("08", "000000", {40, 50, 99});
}

/// Two scenes of the small version, a scan with labels in each, and one without.
inline void nuscenes(const fs::path& folder) {
  const fs::path tables = folder / "v1.0-mini";
  write(tables / "scene.json", R"([{"token": "s1", "name": "scene-0061", "nbr_samples": 1},
                                   {"token": "s2", "name": "scene-0103", "nbr_samples": 2}])");
  write(tables / "sample.json", R"([{"token": "a", "scene_token": "s1", "timestamp": 1},
                                    {"token": "b", "scene_token": "s2", "timestamp": 2}])");
  write(tables / "sample_data.json",
        R"([{"token": "d1", "sample_token": "a", "filename": "samples/LIDAR_TOP/1.pcd.bin", "width": 0},
            {"token": "d3", "sample_token": "a", "filename": "sweeps/LIDAR_TOP/3.pcd.bin", "extra": [{"token": "x"}]},
            {"token": "d2", "sample_token": "b", "filename": "samples/LIDAR_TOP/2.pcd.bin", "is_key_frame": true}])");
  write(tables / "lidarseg.json",
        R"([{"token": "d1", "sample_data_token": "d1", "filename": "lidarseg/v1.0-mini/d1_lidarseg.bin"},
            {"token": "d2", "sample_data_token": "d2", "filename": "lidarseg/v1.0-mini/d2_lidarseg.bin"}])");
  for (const char* name : {"1", "2"})
    write(folder / "samples/LIDAR_TOP" / (name + std::string(".pcd.bin")),
          bytes_of<float>({1, 2, 3, 51, 0, -1, -2, -3, 255, 31, 4, 5, 6, 0, 7}));
  for (const char* name : {"d1", "d2"})
    write(folder / "lidarseg/v1.0-mini" / (name + std::string("_lidarseg.bin")), bytes_of<uint8_t>({17, 0, 24}));
}

/// Two classes: a square and a tetrahedron; the second's header is glued.
inline void modelnet(const fs::path& folder) {
  const std::string square = "OFF\n4 1 0\n0 0 0\n4 0 0\n4 4 0\n0 4 0\n4 0 1 2 3\n";
  const std::string solid = "OFF4 4 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n";
  for (const char* split : {"train", "test"}) {
    write(folder / "plate" / split / "plate_0001.off", square);
    write(folder / "pyramid" / split / "pyramid_0001.off", solid);
  }
  write(folder / "pyramid/train/pyramid_0002.off", solid);
}

}  // namespace lockstep::data::published
