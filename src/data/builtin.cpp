// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/registry.h"

namespace lockstep::data {

// Each is defined in the file of its format. A new one is declared and listed here.
DatasetKind fashion_mnist_kind();
DatasetKind mnist_kind();
DatasetKind cifar10_kind();
DatasetKind images_kind();
DatasetKind tensors_kind();
DatasetKind synthetic_kind();
DatasetKind rooms_kind();
DatasetKind scannet_kind();
DatasetKind s3dis_kind();
DatasetKind semantic_kitti_kind();
DatasetKind nuscenes_kind();
DatasetKind modelnet_kind();

DatasetRegistry builtin() {
  DatasetRegistry registry;
  for (const auto kind : {fashion_mnist_kind, mnist_kind, cifar10_kind, images_kind, tensors_kind, synthetic_kind,
                          rooms_kind, scannet_kind, s3dis_kind, semantic_kitti_kind, nuscenes_kind, modelnet_kind})
    registry.add(kind());
  return registry;
}

}  // namespace lockstep::data
