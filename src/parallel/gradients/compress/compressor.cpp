// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradients/compress/compressor.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

std::string residual_name(const CompressedParameter& parameter) {
  return parameter.name + ".residual";
}

at::Tensor like_weight(const at::Tensor& flat, const at::Tensor& weight) {
  return flat.as_strided(weight.sizes(), weight.strides(), flat.storage_offset());
}

}  // namespace

GradientCompressor::GradientCompressor(TeamState& team, std::vector<CompressedParameter> parameters)
    : team_(team),
      parameters_(std::move(parameters)),
      residuals_(team.members(), std::vector<at::Tensor>(parameters_.size())),
      next_(residuals_) {
  for (const auto& parameter : parameters_)
    require(parameter.weight.is_cpu() &&
                (parameter.weight.scalar_type() == at::kFloat || parameter.weight.scalar_type() == at::kDouble),
            "optimizer", parameter.name, " is ", parameter.weight.scalar_type(), " on ", parameter.weight.device(),
            ", expected float32 or float64 on the CPU: top_k and power_sgd take no other; bf16 and fp16 do");
}

CrewWork GradientCompressor::exchange(const GradientPlan& plan, std::span<const uint8_t> used, double scale,
                                      std::function<CrewWork()> next) {
  plan_ = &plan;
  used_ = used;
  scale_ = scale;
  return compress(std::move(next));
}

const at::Tensor& GradientCompressor::prepare(int64_t member, int64_t p) {
  const at::NoGradGuard no_grad;
  const CompressedParameter& parameter = parameters_[p];
  const at::Tensor& gradient = parameter.leaves[member].grad();
  const at::Tensor& residual = residuals_[member][p];
  at::Tensor& out = next_[member][p];
  if (!gradient.defined()) {
    out = residual.defined() ? residual.clone() : at::zeros({parameter.weight.numel()}, parameter.weight.options());
    return out;
  }
  out = gradient.detach().as_strided({gradient.numel()}, {1}, gradient.storage_offset());
  if (scale_ != 1) out.mul_(scale_);
  if (residual.defined()) out.add_(residual);
  return out;
}

void GradientCompressor::commit() {
  for (size_t m = 0; m < next_.size(); ++m)
    for (int64_t p = 0; p < count(); ++p)
      if (used(p) && has_residual(p)) residuals_[m][p] = std::move(next_[m][p]);
  drop();
}

void GradientCompressor::drop() {
  for (auto& member : next_)
    for (at::Tensor& tensor : member) tensor.reset();
}

std::map<std::string, std::vector<int64_t>> GradientCompressor::state_sizes() const {
  std::map<std::string, std::vector<int64_t>> out;
  for (int64_t p = 0; p < count(); ++p) {
    if (!has_residual(p)) continue;
    auto sizes = parameters_[p].weight.sizes().vec();
    sizes.insert(sizes.begin(), team_.placement.replicas());
    out[residual_name(parameters_[p])] = std::move(sizes);
  }
  return out;
}

std::map<std::string, at::Tensor> GradientCompressor::state() const {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> out;
  for (int64_t p = 0; p < count(); ++p) {
    if (!has_residual(p)) continue;
    const at::Tensor& weight = parameters_[p].weight;
    const auto rows = at::zeros({team_.members(), weight.numel()}, weight.options());
    for (int64_t m = 0; m < team_.members(); ++m)  // in the order of the sizes, whatever that of memory is
      if (const at::Tensor& residual = residuals_[m][p]; residual.defined())
        rows[m].copy_(like_weight(residual, weight).reshape(-1));
    auto sizes = weight.sizes().vec();
    sizes.insert(sizes.begin(), team_.placement.replicas());
    out[residual_name(parameters_[p])] = team_.gather_rows(rows).view(sizes);
  }
  return out;
}

void GradientCompressor::load_state(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  for (int64_t p = 0; p < count(); ++p) {
    if (!has_residual(p)) continue;
    const at::Tensor &weight = parameters_[p].weight, &all = state.at(residual_name(parameters_[p]));
    for (int64_t m = 0; m < team_.members(); ++m) {
      at::Tensor& mine = residuals_[m][p];
      mine = at::empty({weight.numel()}, weight.options());
      like_weight(mine, weight).copy_(all[team_.block.begin + m]);
    }
  }
}

std::unique_ptr<GradientCompressor> make_compressor(TeamState& team, const Wire& wire,
                                                    std::vector<CompressedParameter> parameters) {
  if (const auto* top_k = std::get_if<TopK>(&wire)) return make_top_k(team, *top_k, std::move(parameters));
  if (const auto* power_sgd = std::get_if<PowerSgd>(&wire))
    return make_power_sgd(team, *power_sgd, std::move(parameters));
  return nullptr;
}

int64_t start_of(const Wire& wire) {
  if (const auto* top_k = std::get_if<TopK>(&wire)) return top_k->start;
  if (const auto* power_sgd = std::get_if<PowerSgd>(&wire)) return power_sgd->start;
  return 0;
}

}  // namespace lockstep::parallel
