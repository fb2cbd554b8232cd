// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/clouds.h"

namespace lockstep::data {

// Each is defined in the file of its format. A new one is declared and listed here.
DatasetKind rooms_kind();
DatasetKind scannet_kind();
DatasetKind s3dis_kind();
DatasetKind semantic_kitti_kind();
DatasetKind nuscenes_kind();
DatasetKind modelnet_kind();

std::vector<DatasetKind> cloud_kinds() {
  return {rooms_kind(), scannet_kind(), s3dis_kind(), semantic_kitti_kind(), nuscenes_kind(), modelnet_kind()};
}

const char* note_on_kinds() {
  return "";
}

}  // namespace lockstep::data
