// SPDX-License-Identifier: Apache-2.0
// What all compressors of gradients have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/parallel/wire.h"
#include "parallel/crew/crew.h"
#include "parallel/gradients/plan.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// The parameters whose gradients are compressed, as this process holds them.
struct CompressedParameter {
  std::string name;
  at::Tensor weight;
  std::vector<at::Tensor> leaves;  // one a member
};

/// Sums of gradients of which only a part is sent, with error feedback. Everything is done once a replica (a leaf of
/// the tree), in the same way wherever it runs, so the bits do not depend on the placement.
///
/// A step: exchange() is a chain of work after all backward passes, then sum() gives each piece of the averaged
/// gradient to any thread. commit() makes the step's residuals the next one's; drop() forgets them, for a step that is
/// left out.
class GradientCompressor {
 public:
  GradientCompressor(TeamState& team, std::vector<CompressedParameter> parameters);
  virtual ~GradientCompressor() = default;

  /// `used`: [parameter], whether any replica has a gradient; the others are left alone. `scale`: what a sum of
  /// gradients is multiplied by to be their average.
  CrewWork exchange(const GradientPlan& plan, std::span<const uint8_t> used, double scale,
                    std::function<CrewWork()> next);
  /// `into`: as many elements as the piece has.
  virtual void sum(int64_t piece, const at::Tensor& into) const = 0;
  virtual void commit();
  virtual void drop();

  /// What the next step depends on, "NAME.residual" [R, ...] and more. Collective over processes.
  virtual std::map<std::string, at::Tensor> state() const;
  /// The names and sizes of state(), without its values: not collective.
  virtual std::map<std::string, std::vector<int64_t>> state_sizes() const;
  virtual void load_state(const std::map<std::string, at::Tensor>& state);

 protected:
  virtual CrewWork compress(std::function<CrewWork()> next) = 0;

  int64_t count() const { return static_cast<int64_t>(parameters_.size()); }
  const CompressedParameter& parameter(int64_t p) const { return parameters_[p]; }
  TeamState& team() const { return team_; }
  const GradientPlan& plan() const { return *plan_; }
  bool used(int64_t parameter) const { return used_[parameter]; }
  virtual bool has_residual(int64_t parameter) const { return parameter >= 0; }

  /// A replica's averaged gradient plus its residual, [numel] in the weight's order of memory; in the gradient's own
  /// memory, and kept until commit() or drop(): what compress() leaves in it is the next residual.
  const at::Tensor& prepare(int64_t member, int64_t parameter);
  const at::Tensor& prepared(int64_t member, int64_t parameter) const { return next_[member][parameter]; }

 private:
  TeamState& team_;
  std::vector<CompressedParameter> parameters_;
  std::vector<std::vector<at::Tensor>> residuals_;  // [member][parameter], undefined: zero
  std::vector<std::vector<at::Tensor>> next_;
  const GradientPlan* plan_ = nullptr;
  std::span<const uint8_t> used_;
  double scale_ = 1;
};

/// None for wires that need no such thing. Throws Error for parameters that can't be compressed.
std::unique_ptr<GradientCompressor> make_compressor(TeamState& team, const Wire& wire,
                                                    std::vector<CompressedParameter> parameters);
std::unique_ptr<GradientCompressor> make_top_k(TeamState& team, const TopK& wire,
                                               std::vector<CompressedParameter> parameters);
std::unique_ptr<GradientCompressor> make_power_sgd(TeamState& team, const PowerSgd& wire,
                                                   std::vector<CompressedParameter> parameters);

/// The updates that are made with whole gradients first.
int64_t start_of(const Wire& wire);

}  // namespace lockstep::parallel
