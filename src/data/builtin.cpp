// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/registry.h"

#include <utility>

#include "data/clouds/clouds.h"

namespace lockstep::data {

// Each is defined in the file of its format. A new one is declared and listed here, or in clouds/formats/builtin.cpp.
DatasetKind fashion_mnist_kind();
DatasetKind mnist_kind();
DatasetKind cifar10_kind();
DatasetKind images_kind();
DatasetKind tensors_kind();
DatasetKind synthetic_kind();

DatasetRegistry builtin() {
  DatasetRegistry registry;
  for (const auto kind : {fashion_mnist_kind, mnist_kind, cifar10_kind, images_kind, tensors_kind, synthetic_kind})
    registry.add(kind());
  for (DatasetKind& kind : cloud_kinds()) registry.add(std::move(kind));
  return registry;
}

}  // namespace lockstep::data
