// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

/// A network as a file holds it: its weights, and the configuration that says what it is.
struct ModelFile {
  run::Config config;
  run::Tensors weights;
  std::optional<data::DatasetInfo>
      data{};  ///< what it was trained on, which need not be there; none beside weights alone
};

/// Of a run's folder, a checkpoint, or a file of weights with the run's config.toml beside it. Collective. Throws Error
/// where there is no configuration, unless `model` names the network.
ModelFile open_model(const std::string& path, const std::string& model, const comm::Group& group);

}  // namespace lockstep::cli
