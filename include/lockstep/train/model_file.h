// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/data/dataset.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {

/// A network as a file holds it: its weights, and the configuration that says what it is.
struct ModelFile {
  run::Config config;
  run::Tensors weights;
  /// What it was trained on, which need not be there; none beside weights alone.
  std::optional<data::DatasetInfo> data{};
  /// The file itself says which network it holds; nobody had to name it.
  bool names_network = false;
};

/// Of a run's folder, a checkpoint, or a file of weights with the run's config.toml beside it. Collective. Throws Error
/// where there is no configuration, unless `model` names the network.
ModelFile open_model(const std::string& path, const std::string& model, const comm::Group& group);

/// Has the network be the one whose weights the file holds: their shapes decide the stem, where no setting does, and
/// the number of classes. `info` describes the data that the network is given, which may have fewer classes; what is
/// returned has the network's number, and numbers for names that nobody knows.
data::DatasetInfo fit_to_weights(ModelFile& model, data::DatasetInfo info);

/// What is evaluated, on what, and where.
struct EvaluateOptions {
  std::string path;                          ///< a run's folder, a checkpoint or a file of weights
  std::string model{};                       ///< the network's name, where the file holds weights alone
  std::vector<std::string> set{};            ///< the network's settings, after those of its file: "width=0.5"
  std::string data{};                        ///< empty: what it was trained on
  data::Subset subset = data::Subset::test;  ///< of the data
  std::string devices{};                     ///< of each process; empty: all there are
  std::string split = "data";                ///< what they divide, as in training
  int64_t batch = 0;                         ///< examples evaluated at once, of all replicas; 0: as in training
  int64_t replicas = 0;                      ///< over which they are divided; 0: as in training
  int64_t examples = 0;                      ///< only the first so many; 0: all
  Figures figures{};                         ///< what is counted; of clouds whose points have a class the confusion too
};

/// The figures of a network in a file, and the data that they are of.
struct ModelFigures {
  Evaluation evaluation;
  data::DatasetInfo data;
};

/// Opens a network and evaluates it on all devices, each example counted once. Collective. Throws Error where the file,
/// the data or the options don't fit together.
ModelFigures evaluate_model(const EvaluateOptions& options, const comm::Group& group);

}  // namespace lockstep::train
