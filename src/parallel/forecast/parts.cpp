// SPDX-License-Identifier: Apache-2.0
#include "parallel/forecast/parts.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "parallel/gradients/plan.h"
#include "parallel/split/cut.h"
#include "parallel/split/pipeline.h"

namespace lockstep::parallel {
namespace {

double shared(double seconds, double sliced, int64_t sharers) {
  return seconds - sliced + sliced / static_cast<double>(sharers);
}

// A layer is met for in the forward pass once and in the backward pass for both of its gradients.
double meetings(const StageCost& stage, double meeting, double share) {
  return meeting * share * static_cast<double>(stage.sliced_layers);
}

at::ScalarType type_of(int64_t element_bytes) {
  return element_bytes == 8 ? at::kDouble : element_bytes == 2 ? at::kBFloat16 : at::kFloat;
}

// The plan asks for sizes alone: these tensors have a single number each in memory.
FlatLayout layout_of(const std::vector<GradientCost>& gradients) {
  std::vector<at::Tensor> tensors;
  for (const GradientCost& gradient : gradients)
    tensors.push_back(at::zeros({1}, type_of(gradient.element_bytes)).expand({gradient.numel}));
  return FlatLayout(tensors);
}

ProcessPart process_part(const StepCost& all, size_t first, size_t end) {
  ProcessPart part{.first = first, .cost = all};
  StepCost& cost = part.cost;
  cost.stages.assign(all.stages.begin() + static_cast<ptrdiff_t>(first),
                     all.stages.begin() + static_cast<ptrdiff_t>(end));
  cost.gradients.clear();
  for (GradientCost gradient : all.gradients) {
    if (static_cast<size_t>(gradient.stage) < first || static_cast<size_t>(gradient.stage) >= end) continue;
    gradient.stage -= static_cast<int64_t>(first);
    cost.gradients.push_back(gradient);
  }
  const double held = static_cast<double>(gradient_bytes(cost)) / static_cast<double>(gradient_bytes(all));
  cost.sum_row *= held;
  cost.update *= held;
  const StageCost& last = cost.stages.back();
  part.border = {.forward = {.tensors = last.handed_tensors, .bytes = last.handed_bytes},
                 .backward = {.tensors = last.returned_tensors, .bytes = last.returned_bytes}};
  return part;
}

}  // namespace

double forward_with(const StageCost& stage, int64_t sharers, double meeting) {
  if (sharers == 1) return stage.forward;
  return shared(stage.forward, stage.sliced_forward, sharers) + meetings(stage, meeting, 1.0 / 2);
}

double backward_with(const StageCost& stage, int64_t sharers, double meeting) {
  if (sharers == 1) return stage.backward;
  return shared(stage.backward, stage.sliced_backward, sharers) + meetings(stage, meeting, 1.0 / 2);
}

PartCosts parts_of(const StepCost& cost, int64_t devices, const Split& split) {
  const auto stages = static_cast<int64_t>(cost.stages.size());
  require(stages >= split.parts, "forecast", "split ", to_string(split), " wants ", split.parts,
          " parts, and the network has ", stages, " stages, expected one or more for each part");
  PartCosts out{.devices = devices_of_parts(std::max<int64_t>(1, devices / split.sharers), split.parts)};
  std::vector<double> costs, late;
  for (const StageCost& stage : cost.stages) {
    costs.push_back(forward_with(stage, split.sharers, cost.meeting) +
                    backward_with(stage, split.sharers, cost.meeting));
    late.push_back(stage.late_backward);
  }
  out.first = cut_for_threads(costs, late, out.devices);
  for (size_t part = 0; part < out.first.size(); ++part) {
    const size_t end = part + 1 < out.first.size() ? out.first[part + 1] : cost.stages.size();
    double forward = 0, backward = 0;
    std::vector<double> late;
    int64_t kept = 0;
    for (size_t stage = out.first[part]; stage < end; ++stage) {
      forward += forward_with(cost.stages[stage], split.sharers, cost.meeting);
      backward += backward_with(cost.stages[stage], split.sharers, cost.meeting);
      if (cost.stages[stage].late_backward > 0) late.insert(late.begin(), cost.stages[stage].late_backward);
      kept += cost.stages[stage].kept_bytes;
    }
    out.forward.push_back(forward);
    out.backward.push_back(backward);
    out.late.push_back(std::move(late));
    out.kept_bytes.push_back(kept);
  }
  return out;
}

// A part has as many replicas in flight as there are devices from it on (crew/permits.h).
int64_t kept_bytes(const PartCosts& parts, int64_t replicas, int64_t ahead) {
  int64_t bytes = 0, from_here = ahead;
  for (size_t part = parts.first.size(); part-- > 0;) {
    from_here += parts.devices[part];
    bytes += std::min(replicas, from_here) * parts.kept_bytes[part];
  }
  return bytes;
}

int64_t gradient_bytes(const StepCost& cost) {
  int64_t bytes = 0;
  for (const GradientCost& gradient : cost.gradients) bytes += gradient.numel * gradient.element_bytes;
  return bytes;
}

std::vector<ProcessPart> process_parts_of(const StepCost& cost, int64_t parts, double seconds_a_byte) {
  if (parts == 1) return {{.cost = cost}};
  std::vector<bool> is_trained(cost.stages.size(), false);
  for (const GradientCost& gradient : cost.gradients) is_trained[gradient.stage] = true;
  const std::vector<bool> may_begin = may_begin_part(is_trained);
  std::vector<size_t> begins;
  std::vector<double> seconds;
  std::vector<int64_t> crossing;
  for (size_t stage = 0; stage < cost.stages.size(); ++stage) {
    if (may_begin[stage]) begins.push_back(stage);
    seconds.push_back(cost.stages[stage].seconds());
    crossing.push_back(cost.stages[stage].handed_bytes + cost.stages[stage].returned_bytes);
  }
  require(static_cast<int64_t>(begins.size()) >= parts, "forecast", "split p", parts, " wants ", parts,
          " processes, and ", begins.size(), " of the network's stages may begin a part, expected one for each");
  const std::vector<size_t> first = cut_evenly_at(begins, seconds, std::vector<int64_t>(parts, 1), crossing,
                                                  std::vector<double>(parts - 1, seconds_a_byte));
  std::vector<ProcessPart> out;
  for (size_t part = 0; part < first.size(); ++part)
    out.push_back(process_part(cost, first[part], part + 1 < first.size() ? first[part + 1] : cost.stages.size()));
  return out;
}

BucketCosts buckets_of(const StepCost& cost, const PartCosts& parts, int64_t sharers) {
  BucketCosts out;
  out.marks.resize(parts.first.size());
  std::vector<int64_t> order(cost.gradients.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto plan = GradientPlan::make(layout_of(cost.gradients), order, bucket_bytes(at::kCPU));
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    out.numel.push_back(bucket.numel);
    out.element_bytes.push_back(static_cast<int64_t>(c10::elementSize(bucket.dtype)));
    out.pieces.push_back(static_cast<int64_t>(bucket.pieces.size()));
    // Gradients come in this order, so the last parameter completes it.
    const GradientCost& last = cost.gradients[bucket.parameters.back()];
    const auto part = static_cast<size_t>(std::ranges::upper_bound(parts.first, static_cast<size_t>(last.stage)) -
                                          parts.first.begin() - 1);
    const size_t end = part + 1 < parts.first.size() ? parts.first[part + 1] : cost.stages.size();
    const StageCost& stage = cost.stages[last.stage];
    const double own = backward_with(stage, sharers, cost.meeting);
    double at = stage.backward > 0 ? std::min(1.0, last.at / stage.backward) * own : 0;
    for (size_t later = static_cast<size_t>(last.stage) + 1; later < end; ++later)
      at += backward_with(cost.stages[later], sharers, cost.meeting);
    auto& marks = out.marks[part];
    marks.emplace_back(marks.empty() ? at : std::max(at, marks.back().first), static_cast<int64_t>(b));
  }
  return out;
}

}  // namespace lockstep::parallel
