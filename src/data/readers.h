// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/formats/file.h"
#include "lockstep/data/cloud.h"

// One function a kind of data set; open.cpp chooses. All throw Error as open_dataset says.
namespace lockstep::data {

using DatasetPointer = std::shared_ptr<const Dataset>;

/// IDX files under MNIST's names. `name` is fashion-mnist or mnist.
DatasetPointer open_idx(const std::string& name, const fs::path& folder, Split split);
bool holds_idx(const fs::path& folder);

/// CIFAR-10's binary version, in the folder or in its sub-folder cifar-10-batches-bin.
DatasetPointer open_cifar10(const fs::path& folder, Split split);
bool holds_cifar10(const fs::path& folder);

DatasetPointer open_images(const fs::path& folder, Split split, const DatasetOptions& options);
bool holds_images(const fs::path& folder);

DatasetPointer open_tensors(const fs::path& file, Split split);

/// "", "SCENES" or "SCENES:METRES"
DatasetPointer open_rooms(std::string_view spec, Split split, const DatasetOptions& options);

/// Published data sets of clouds; docs/point_clouds.md has their layouts.
DatasetPointer open_scannet(const fs::path& path, Split split, const DatasetOptions& options);
/// "PATH" or "PATH:AREA", the one for validation
DatasetPointer open_s3dis(std::string_view spec, Split split, const DatasetOptions& options);
DatasetPointer open_semantic_kitti(const fs::path& path, Split split, const DatasetOptions& options);
DatasetPointer open_nuscenes(const fs::path& path, Split split, const DatasetOptions& options);
/// "PATH" or "PATH:POINTS"
DatasetPointer open_modelnet(std::string_view spec, Split split, const DatasetOptions& options);

/// How a data set keeps clouds and labels in files, for those that are not among its scenes; cloud_files.cpp chooses.
struct CloudFormat {
  const char* cloud_suffix = ".ply";  ///< of the names of its clouds' files
  const char* label_suffix = ".txt";  ///< what takes that suffix's place in the names of labels' files
  Cloud (*read)(const std::string& file, const DatasetInfo& info) = nullptr;  ///< null: the points of a PLY file
  size_t label_bytes = 0;  ///< a label is an unsigned integer of so many bytes; 0: digits on a line of its own
  /// What stands for a class; its number where this is null.
  int64_t (*label_of)(int64_t known) = nullptr;
};
CloudFormat scannet_format();
CloudFormat semantic_kitti_format();
CloudFormat nuscenes_format();
CloudFormat modelnet_format();

/// "SHAPE:CLASSES:COUNT"
DatasetPointer open_synthetic(std::string_view spec, Split split, const DatasetOptions& options);

}  // namespace lockstep::data
