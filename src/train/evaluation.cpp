// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/evaluation.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/metrics/confusion_matrix.h"
#include "train/input.h"
#include "train/precision.h"

namespace lockstep::train {
namespace {

// What one replica adds up: these numbers, then the confusion matrix.
enum Sum : int64_t { kLossSum, kRightSum, kTopKSum, kTargetsSum, kExamplesSum, kAddedSum, kSums };

data::LoaderOptions loader_options(const EvaluationOptions& options) {
  return {.batch = options.batch,
          .replicas = options.replicas,
          .block = options.block,
          .transforms = options.transforms.deterministic(),
          .layout = options.layout,
          .inputs = options.inputs,
          .bytes = options.bytes,
          .workers = options.workers,
          .cache = options.cache,
          .points = options.figures.points};
}

void add(at::Tensor& sums, const at::Tensor& logits, const data::Batch& batch, int64_t classes,
         const Figures& figures) {
  auto scores = logits.to(at::kCPU, at::kFloat);
  if (figures.points) scores = scores.index_select(0, batch.voxel_of_point);
  const auto& targets = figures.points ? batch.point_targets : batch.targets;
  auto* numbers = sums.mutable_data_ptr<double>();
  const auto best = scores.argmax(1);
  numbers[kLossSum] += at::cross_entropy_loss(scores, targets, {}, at::Reduction::Sum).item<double>();
  numbers[kRightSum] += best.eq(targets).sum().item<double>();
  if (figures.top_k > 0)
    numbers[kTopKSum] += std::get<1>(scores.topk(std::min(figures.top_k, scores.size(1)), 1))
                             .eq(targets.unsqueeze(1))
                             .sum()
                             .item<double>();
  numbers[kTargetsSum] += targets.ge(0).sum().item<double>();
  numbers[kExamplesSum] += static_cast<double>(batch.count);
  if (!figures.confusion) return;
  require(scores.size(1) == classes, "evaluate", "the network tells ", scores.size(1), " classes apart, expected ",
          classes, " as the data set has");
  const auto known = targets.ge(0);
  const auto pairs = (targets * classes + best).masked_select(known);
  sums.narrow(0, kSums, classes * classes).add_(at::bincount(pairs, {}, classes * classes));
}

}  // namespace

Evaluator::Evaluator(std::shared_ptr<const data::Dataset> dataset, const EvaluationOptions& options)
    : options_(options) {
  require(dataset != nullptr, "Evaluator", "the data set is empty, expected one");
  const auto order = data::Order::sequential(dataset->size());
  loader_ = std::make_unique<data::Loader>(std::move(dataset), order, loader_options(options));
}

Evaluator::~Evaluator() = default;

Evaluation Evaluator::run(parallel::Replica& me, models::Classifier& network, double added) {
  const int64_t classes = loader_->dataset().info().classes;
  const auto add_up = [&](Interval) {
    auto sums = at::zeros({kSums + (options_.figures.confusion ? classes * classes : 0)}, at::kDouble);
    for (const data::Batch& batch : loader_->share(me.number())) {
      if (batch.count == 0) continue;
      const PrecisionScope precision(options_.precision, me.device());
      add(sums, network.forward(input_of(batch, me.device())), batch, classes, options_.figures);
    }
    sums[kAddedSum] = added;
    return sums;
  };
  // One call a replica: its shares are its own affair.
  const auto sums = me.evaluate(me.replicas(), 1, add_up);
  const auto* numbers = sums.const_data_ptr<double>();
  Evaluation out;
  out.examples = static_cast<int64_t>(numbers[kExamplesSum]);
  out.loss = numbers[kLossSum] / numbers[kTargetsSum];
  out.accuracy = numbers[kRightSum] / numbers[kTargetsSum];
  out.top_k = numbers[kTopKSum] / numbers[kTargetsSum];
  out.added = numbers[kAddedSum];
  if (!options_.figures.confusion) return out;
  const auto counts = sums.narrow(0, kSums, classes * classes);
  out.confusion = counts.to(at::kLong).view({classes, classes});
  if (loader_->dataset().info().segments()) {
    metrics::MeanIoU iou(classes);
    iou.merge(counts.unsqueeze(0));
    out.mean_iou = iou.value();
    out.class_iou = iou.of_classes();
  }
  return out;
}

}  // namespace lockstep::train
