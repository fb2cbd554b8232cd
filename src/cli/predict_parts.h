// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/predict.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/classifier.h"

/// A reader for each kind of data that a network may take. Each answers a file with a list of JSON objects and throws
/// Error for a file of another kind.
namespace lockstep::cli {

using Json = nlohmann::ordered_json;

/// A network, ready to be asked, and what it was trained on.
struct Trained {
  models::Classifier& network;
  at::Device device;
  const data::DatasetInfo& data;
  std::string augment;
};

/// Of logits [classes] the `top` classes with their probabilities, the likeliest first.
Json likeliest(const at::Tensor& logits, const data::DatasetInfo& info, int64_t top);

/// Of an image, or of each input in a .pt file: {"file", "predictions"}.
Json predict_inputs(const std::string& file, const Trained& trained, const PredictOptions& options);

/// Of a cloud: {"file", "points"}, and from a network that labels points {"classes": how many points each has,
/// "accuracy"}, the latter where the file has labels, from one that classifies clouds {"predictions"}. Writes the files
/// that the options name.
Json predict_cloud(const std::string& file, const Trained& trained, const PredictOptions& options);

}  // namespace lockstep::cli
