// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradients/exchange.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/reduce.h"
#include "lockstep/context/timeline_scope.h"

namespace lockstep::parallel {

/// Runs right after a gradient was accumulated, on the thread of the backward pass.
class GradientExchange::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientExchange* exchange, int64_t member, int64_t parameter)
      : exchange_(exchange), member_(member), parameter_(parameter) {}
  void operator()(const at::Tensor&) override { exchange_->bring(member_, parameter_); }

 private:
  GradientExchange* exchange_;
  int64_t member_;
  int64_t parameter_;
};

GradientArrivals GradientExchange::arrivals_of(const TeamState& team, std::vector<std::vector<at::Tensor>> leaves) {
  if (!team.has_other_processes() || team.options.order == Order::ring) {
    const int64_t members = team.block.size();
    return {std::move(leaves), TreeProgram::of_leaves(members), members};
  }
  const int64_t replicas = team.placement.replicas();
  return {std::move(leaves), TreeProgram::of_block(replicas, team.block), replicas};
}

GradientExchange::GradientExchange(TeamState& team, GradientPlan plan, GradientArrivals arrivals,
                                   std::optional<at::ScalarType> wire)
    : team_(team), plan_(std::move(plan)), arrivals_(std::move(arrivals)), wire_(wire) {
  int64_t longest = 0;
  for (const Piece& piece : plan_.pieces) longest = std::max(longest, piece.size());
  zeros_ = at::zeros({longest * 8}, at::TensorOptions(at::kByte).device(team.device));
  if (crosses())
    for (size_t b = 0; b < plan_.buckets.size(); ++b) transits_.emplace_back();
  for (size_t m = 0; m < leaves().size(); ++m)
    for (size_t p = 0; p < leaves()[m].size(); ++p)
      torch::autograd::impl::set_post_acc_grad_hooks(
          leaves()[m][p], std::make_unique<Hook>(this, static_cast<int64_t>(m), static_cast<int64_t>(p)));
  expect_buckets();
}

GradientExchange::~GradientExchange() {
  for (const auto& member : leaves())
    for (const auto& leaf : member) torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
}

// On a GPU the members' passes share a thread and a stream, and a launch an addition would cost more than the memory.
void GradientExchange::hold(bool held, bool adds) {
  held_ = held;
  arrivals_.fold(adds && !wire_ && team_.device.is_cpu() && team_.audit == nullptr && leaves().size() > 1);
}

void GradientExchange::bring(int64_t member, int64_t parameter) {
  if (!arrivals_.counts(member)) return;
  require(!arrivals_.has_arrived(member, parameter), "step", "a gradient of parameter ", parameter,
          " came twice in the backward pass of one loss, after others had been added to it, expected once: call "
          "backward(loss, ...) and then step(optimizer) in place of step(loss, ...)");
  arrive(member, parameter);
}

void GradientExchange::arrive(int64_t member, int64_t parameter) {
  if (!arrivals_.arrive(member, parameter) || held_ || !crosses()) return;
  bool complete = false;
  for (const int64_t bucket : plan_.buckets_of[parameter]) complete |= transits_[bucket].pending.fetch_sub(1) == 1;
  if (complete) post_complete();
}

void GradientExchange::complete(int64_t member) {
  if (!arrivals_.counts(member)) arrivals_.expect(member);
  for (size_t p = 0; p < leaves()[member].size(); ++p) arrive(member, static_cast<int64_t>(p));
}

void GradientExchange::post_all() {
  for (Transit& transit : transits_) transit.pending = 0;
  if (crosses()) post_complete();
}

// One thread posts at a time. Another that completes a bucket meanwhile leaves a mark and goes on with its own work.
void GradientExchange::post_complete() {
  if (postable_.fetch_add(1) > 0) return;
  for (int64_t seen = postable_; seen > 0; seen = postable_.fetch_sub(seen) - seen)
    while (posted_ < static_cast<int64_t>(transits_.size()) && transits_[posted_].pending == 0) post(posted_++);
}

at::ScalarType GradientExchange::type_on_wire(at::ScalarType dtype) const {
  return wire_ && (dtype == at::kFloat || dtype == at::kDouble) ? *wire_ : dtype;
}

GradientExchange::Sources GradientExchange::sources(const Piece& piece) const {
  const std::vector<at::Tensor> gradients = arrivals_.rows(piece.parameter);
  std::vector<const std::byte*> from;
  const at::ScalarType dtype = plan_.buckets[piece.bucket].dtype, wire = type_on_wire(dtype);
  if (wire != dtype) {
    const at::NoGradGuard no_grad;
    const auto rounded =
        at::empty({static_cast<int64_t>(gradients.size()), piece.size()}, at::TensorOptions(wire).device(team_.device));
    for (size_t r = 0; r < gradients.size(); ++r) {
      const at::Tensor row = rounded[static_cast<int64_t>(r)];
      if (gradients[r].defined())
        row.copy_(gradients[r].as_strided({piece.size()}, {1}, gradients[r].storage_offset() + piece.begin));
      else
        row.zero_();
      from.push_back(static_cast<const std::byte*>(row.const_data_ptr()));
    }
    return {from, rounded};
  }
  for (const at::Tensor& gradient : gradients)
    from.push_back(gradient.defined() ? static_cast<const std::byte*>(gradient.const_data_ptr()) +
                                            piece.begin * static_cast<int64_t>(gradient.element_size())
                                      : static_cast<const std::byte*>(zeros_.const_data_ptr()));
  return {from, {}};
}

void GradientExchange::add_up(at::ScalarType dtype, std::span<const std::byte* const> from,
                              std::span<std::byte* const> to, int64_t count) const {
  comm::reduce_on(team_.device, arrivals_.rest(), ReduceOp::sum, dtype, from, to, count);
}

void GradientExchange::post(int64_t index) {
  const PhaseScope posting(Phase::exchange, nullptr, index);
  const Bucket& bucket = plan_.buckets[index];
  Transit& transit = transits_[index];
  const at::ScalarType dtype = type_on_wire(bucket.dtype);
  const auto options = at::TensorOptions(dtype).device(team_.device);
  if (transit.nodes.empty())  // padding between pieces travels too: it is zero
    for (size_t k = 0; k < arrivals_.rest().results().size(); ++k)
      transit.nodes.push_back(at::zeros({bucket.numel}, options));
  for (const int64_t number : bucket.pieces) {
    const Piece& piece = plan_.pieces[number];
    std::vector<std::byte*> to;
    for (const auto& node : transit.nodes)
      to.push_back(static_cast<std::byte*>(node.mutable_data_ptr()) +
                   piece.offset * static_cast<int64_t>(node.element_size()));
    add_up(dtype, sources(piece).rows, to, piece.size());
  }
  transit.work = team_.options.order == Order::ring
                     ? team_.gradients.all_reduce(transit.nodes[0], ReduceOp::sum, {.order = Order::ring})
                     : team_.gradients.all_reduce_blocks(team_.placement, transit.nodes, transit.nodes[0]);
}

void GradientExchange::wait_for(Transit& transit, int64_t bucket) {
  if (transit.arrived.load(std::memory_order_acquire)) return;
  const PhaseScope waiting(Phase::exposed, nullptr, bucket);
  const Lock lock(transit.waiting);
  transit.work.wait();
  transit.arrived.store(true, std::memory_order_release);
}

void GradientExchange::wait(int64_t number) {
  if (!crosses()) return;
  const int64_t bucket = plan_.pieces[number].bucket;
  wait_for(transits_[bucket], bucket);
}

at::Tensor GradientExchange::sum(int64_t number, const at::Tensor& into) {
  const Piece& piece = plan_.pieces[number];
  const at::ScalarType dtype = plan_.buckets[piece.bucket].dtype;
  const bool rounds = type_on_wire(dtype) != dtype;
  const at::NoGradGuard no_grad;
  if (crosses()) {
    Transit& transit = transits_[piece.bucket];
    wait_for(transit, piece.bucket);
    const at::Tensor sum = transit.nodes[0].narrow(0, piece.offset, piece.size());
    return rounds ? into.narrow(0, 0, piece.size()).copy_(sum) : sum;
  }
  // What is added up already, or a single gradient, is the caller's to overwrite.
  if (arrivals_.rest().sources() == 1 && !rounds)
    if (const at::Tensor gradient = arrivals_.rows(piece.parameter)[0]; gradient.defined())
      return gradient.as_strided({piece.size()}, {1}, gradient.storage_offset() + piece.begin);
  const at::Tensor result = into.narrow(0, 0, piece.size());
  const Sources from = sources(piece);
  const at::Tensor sum = rounds ? from.rounded[0] : result;
  std::byte* const to = static_cast<std::byte*>(sum.mutable_data_ptr());
  add_up(sum.scalar_type(), from.rows, {&to, 1}, piece.size());
  return rounds ? result.copy_(sum) : result;
}

void GradientExchange::clear(int64_t member) {
  arrivals_.clear(member);
}

void GradientExchange::reset() {
  arrivals_.reset();
  expect_buckets();
}

void GradientExchange::expect_buckets() {
  posted_ = 0;
  for (Transit& transit : transits_) transit.arrived = false;
  for (size_t b = 0; b < transits_.size(); ++b)
    transits_[b].pending = static_cast<int64_t>(plan_.buckets[b].parameters.size() * leaves().size());
}

}  // namespace lockstep::parallel
