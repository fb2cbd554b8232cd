// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/data/cloud.h"

namespace lockstep::data {

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

}  // namespace lockstep::data
