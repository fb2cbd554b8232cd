// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transforms.h"
#include "lockstep/models/classifier.h"
#include "lockstep/numerics/placement.h"
#include "lockstep/parallel/replica.h"

namespace lockstep::data {
class Loader;
}

namespace lockstep::train {

/// Mixed precision of the forward pass, where asked for.
enum class Precision : uint8_t { full, bf16, fp16 };

/// What an evaluation counts.
struct Figures {
  /// Count also answers among the best so many; 0: don't.
  int64_t top_k = 0;
  /// Count which class was taken for which.
  bool confusion = false;
  /// Of clouds whose points have a class each: count the points, each with its voxel's answer, as benchmarks do. Else
  /// their voxels count, as in training.
  bool points = false;
};

struct EvaluationOptions {
  int64_t batch = 1024;  ///< of all replicas together
  int64_t replicas = 1;
  Interval block{0, 1};  ///< those of this process
  data::Transforms transforms{};
  data::Layout layout = data::Layout::contiguous;
  bool inputs = true;  ///< data::LoaderOptions::inputs
  bool bytes = false;  ///< data::LoaderOptions::bytes
  Precision precision = Precision::full;
  int workers = 1;
  std::string cache{};  ///< data::LoaderOptions::cache
  Figures figures{};
};

/// The figures of a network on a data set, each example (of clouds, each voxel or point that has a class) counted once:
/// the same bits in every placement.
struct Evaluation {
  double loss = 0;  ///< mean cross entropy
  double accuracy = 0;
  double top_k = 0;  ///< where it was asked for
  int64_t examples = 0;
  at::Tensor confusion{};  ///< [classes, classes] int64, truth by prediction; where it was asked for
  /// Of clouds, where the confusion was asked for: intersection / union of each class, NaN where it does not occur, and
  /// their mean.
  std::vector<double> class_iou{};
  std::optional<double> mean_iou{};
  double added = 0;  ///< the sum of what replicas added
};

/// Evaluates a network on all devices of a team, any number of times.
class Evaluator {
 public:
  /// Throws Error where the options make no sense.
  Evaluator(std::shared_ptr<const data::Dataset> dataset, const EvaluationOptions& options);
  ~Evaluator();

  /// Collective over all replicas. `network` is one that me.share() gave; it is in eval mode meanwhile. `added`: a
  /// number that is summed over the replicas along with the figures.
  Evaluation run(parallel::Replica& me, models::Classifier& network, double added = 0);

 private:
  EvaluationOptions options_;
  std::unique_ptr<data::Loader> loader_;
};

}  // namespace lockstep::train
