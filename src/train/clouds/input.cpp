// SPDX-License-Identifier: Apache-2.0
#include "train/input.h"

namespace lockstep::train {

models::Input input_of(const data::Batch& batch, c10::Device device) {
  auto inputs = batch.inputs_on(device);
  if (!batch.coordinates.defined()) return inputs;
  auto manager = std::make_shared<sparse::CoordinateManager>(batch.coordinates.size(1) - 1);
  manager->set_batch_size(batch.ids.size(0));  // the last ones may have no points
  return sparse::SparseTensor(inputs, batch.sorted_coordinates, std::move(manager));
}

}  // namespace lockstep::train
