// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/models/classifier.h"

namespace lockstep::cli {

/// What a network makes of the points of a PLY file: how many of each class, and, where files are named, the cloud with
/// a label for each point and coloured by it, and a picture of it. Where the file has labels their accuracy is told.
/// Throws Error for a file that is no PLY.
nlohmann::ordered_json predict_cloud(const std::string& file, models::Classifier& network,
                                     const data::DatasetInfo& info, const std::string& out, const std::string& png);

}  // namespace lockstep::cli
