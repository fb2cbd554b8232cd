// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradients/arrivals.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace lockstep::parallel {
namespace {

// Gradients are added up as rows of memory: one that lies otherwise than its weight is laid out anew.
void lay_out(const at::Tensor& leaf) {
  at::Tensor& gradient = leaf.mutable_grad();
  if (!gradient.defined()) return;
  if (gradient.layout() == at::kStrided && gradient.strides() == leaf.strides()) return;
  const at::NoGradGuard no_grad;
  auto dense = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
  gradient = at::empty_strided(leaf.sizes(), leaf.strides(), leaf.options()).copy_(dense);
}

// Of the leaves it is 0.
int64_t level_of(Interval node) {
  return std::bit_width(static_cast<uint64_t>(node.size() - 1));
}

}  // namespace

GradientArrivals::GradientArrivals(std::vector<std::vector<at::Tensor>> leaves, const TreeProgram& program,
                                   int64_t replicas)
    : leaves_(std::move(leaves)),
      replicas_(replicas),
      program_(program),
      first_(leaves_.size(), -1),
      members_(leaves_.size()) {
  for (const Interval& node : program.results())
    std::ranges::copy(plan(node, level_of(node), true), std::back_inserter(rest_));
  folded_ = program_of(rest_);
  const size_t parameters = leaves_.empty() ? 0 : leaves_[0].size();
  for (Member& member : members_) {
    member.arrived.assign(parameters, 0);
    member.came.assign(parameters, 0);
    member.order.assign(parameters, 0);
  }
  come_ = std::vector<std::atomic<uint8_t>>(parameters * planned_.size());
}

// The sums that a node's own is made of, once what is folded below it is.
std::vector<GradientArrivals::Sum> GradientArrivals::plan(Interval node, int64_t levels, bool is_last) {
  const int64_t begin = program_.results()[0].begin;
  if (node.size() == 1) return {{node, node.begin - begin}};
  const int64_t level = level_of(node), middle = node.begin + (int64_t{1} << (level - 1));
  std::vector<Sum> sums = plan({node.begin, middle}, levels, false);
  std::ranges::copy(plan({middle, node.end}, levels, false), std::back_inserter(sums));
  const bool folds = level % 2 == 0 || (levels == 2 && level == 1);
  if (is_last || !folds) return sums;
  const auto fold = static_cast<int64_t>(planned_.size());
  for (const Sum& sum : sums) (sum.next < 0 ? first_[sum.member] : planned_[sum.next].next) = fold;
  planned_.push_back({sums, program_of(sums)});
  return {{node, sums[0].member, fold}};
}

TreeProgram GradientArrivals::program_of(std::span<const Sum> sums) const {
  std::vector<Interval> nodes;
  for (const Sum& sum : sums) nodes.push_back(sum.node);
  return TreeProgram::of_nodes(replicas_, nodes);
}

void GradientArrivals::expect(int64_t member) {
  members_[member].counts = true;
  members_[member].count = 0;
}

bool GradientArrivals::arrive(int64_t member, int64_t parameter) {
  Member& mine = members_[member];
  if (!mine.counts || mine.arrived[parameter] != 0) return false;
  mine.arrived[parameter] = 1;
  mine.order[std::atomic_ref(mine.count)++] = parameter;
  lay_out(leaves_[member][parameter]);
  mine.came[parameter] = leaves_[member][parameter].grad().defined();
  for (int64_t fold = first_[member]; folds_ && fold >= 0; fold = planned_[fold].next) {
    const auto& sums = planned_[fold].sums;
    auto& come = come_[parameter * static_cast<int64_t>(planned_.size()) + fold];
    if (come.fetch_add(1, std::memory_order_acq_rel) + size_t{1} < sums.size()) break;
    add(planned_[fold], parameter);
  }
  return true;
}

// One that did not come is zero.
void GradientArrivals::add(const Fold& fold, int64_t parameter) {
  const auto gradient_of = [&](const Sum& sum) -> at::Tensor& { return leaves_[sum.member][parameter].mutable_grad(); };
  at::Tensor into, zeros;
  for (const Sum& sum : fold.sums)
    if (!into.defined()) into = gradient_of(sum);
  if (!into.defined()) return;
  const at::NoGradGuard no_grad;
  std::vector<const std::byte*> from;
  for (const Sum& sum : fold.sums) {
    at::Tensor& gradient = gradient_of(sum);
    if (!gradient.defined() && !zeros.defined()) zeros = at::zeros_like(into);
    from.push_back(static_cast<const std::byte*>((gradient.defined() ? gradient : zeros).const_data_ptr()));
  }
  auto* const to = static_cast<std::byte*>(into.mutable_data_ptr());
  reduce(fold.program, ReduceOp::sum, into.scalar_type(), from, {&to, 1}, into.numel());
  for (const Sum& sum : fold.sums) gradient_of(sum).reset();
  gradient_of(fold.sums[0]) = into;
}

std::vector<at::Tensor> GradientArrivals::rows(int64_t parameter) const {
  std::vector<at::Tensor> out;
  if (folds_)
    for (const Sum& sum : rest_) out.push_back(leaves_[sum.member][parameter].grad());
  else
    for (const auto& member : leaves_) out.push_back(member[parameter].grad());
  return out;
}

void GradientArrivals::clear(int64_t member) {
  for (const at::Tensor& leaf : leaves_[member]) leaf.mutable_grad().reset();
  Member& mine = members_[member];
  mine.counts = false;
  std::ranges::fill(mine.arrived, 0);
}

void GradientArrivals::reset() {
  for (auto& come : come_) come.store(0, std::memory_order_relaxed);
}

GradientArrivals GradientArrivals::of(std::span<const int64_t> parameters) const {
  std::vector<std::vector<at::Tensor>> leaves(leaves_.size());
  for (size_t m = 0; m < leaves_.size(); ++m)
    for (const int64_t p : parameters) leaves[m].push_back(leaves_[m][p]);
  GradientArrivals out(std::move(leaves), program_, replicas_);
  out.folds_ = folds_;
  for (size_t m = 0; m < members_.size(); ++m) {
    out.members_[m].counts = members_[m].counts;
    for (size_t k = 0; k < parameters.size(); ++k) {
      out.members_[m].arrived[k] = members_[m].arrived[parameters[k]];
      out.members_[m].came[k] = members_[m].came[parameters[k]];
    }
  }
  return out;
}

}  // namespace lockstep::parallel
