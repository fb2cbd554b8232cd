// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/models/classifier.h"
#include "lockstep/train/prediction.h"

/// A reader for each kind of data that a network may take. Each throws Error for a file of another kind.
namespace lockstep::train {

/// A network, ready to be asked, and what it was trained on.
struct Trained {
  models::Classifier& network;
  at::Device device;
  const data::DatasetInfo& data;
  std::string augment;
};

/// Of logits [classes] the `top` classes with their probabilities, the likeliest first.
std::vector<ClassProbability> likeliest(const at::Tensor& logits, const data::DatasetInfo& info, int64_t top);

/// Of an image, or of each input in a .pt file.
std::vector<Prediction> predict_inputs(const std::string& file, const Trained& trained, const PredictOptions& options);

/// Of a cloud. Writes the files that the options name.
std::vector<Prediction> predict_cloud(const std::string& file, const Trained& trained, const PredictOptions& options);

}  // namespace lockstep::train
