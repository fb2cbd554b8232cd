// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/error.h"
#include "train/input.h"
#include "train/predict/parts.h"

// In place of the other sources of this folder in a build without clouds (LOCKSTEP_CLOUDS=OFF).
namespace lockstep::train {

models::Input input_of(const data::Batch& batch, c10::Device device) {
  return batch.inputs_on(device);
}

std::vector<Prediction> predict_cloud(const std::string& file, const Trained& /*trained*/,
                                      const PredictOptions& /*options*/) {
  fail("predict", "'", file, "' is a point cloud, and clouds were left out of this build (LOCKSTEP_CLOUDS=OFF)");
}

}  // namespace lockstep::train
