// SPDX-License-Identifier: Apache-2.0
// An optimiser as the replicas of a process share it: its state and its step.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/numerics/detail/flat.h"
#include "lockstep/parallel/optimizer.h"
#include "lockstep/parallel/replica.h"
#include "parallel/crew/crew.h"
#include "parallel/gradients/compress/compressor.h"
#include "parallel/gradients/division.h"
#include "parallel/gradients/exchange.h"
#include "parallel/optim/contribution.h"
#include "parallel/optim/rules/rule_slice.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// One parameter that an optimiser updates.
struct OptimizedParameter {
  std::string name;
  at::Tensor weight;  // the process's one storage
  std::vector<at::Tensor> leaves;
  int64_t group = 0;
  int64_t updates = 0;
  int64_t number = 0;                // among the optimiser's, in all parts of the network
  int64_t owner = ProcessCut::kAll;  // the part that holds it
};

/// An optimiser, as all replicas of this process share it. Its members are called by whoever comes last to a meeting,
/// its work's tasks by all.
class OptimizerState {
 public:
  OptimizerState(std::shared_ptr<TeamState> team, std::vector<OptimizedParameter> parameters, std::vector<Rule> rules,
                 const OptimizerOptions& options);

  GradientExchange& exchange() { return *exchange_; }
  Contribution& contribution(int64_t member) { return contributions_[member]; }
  std::span<const OptimizedParameter> parameters() const { return parameters_; }
  double loss_scale() const { return loss_scale_; }
  int64_t steps() const { return steps_; }
  const StepResult& result() const { return result_; }

  /// Numbers that travel with each step. Throws Error where the name is taken.
  void add_sum(const std::string& name);
  std::span<const std::string> sum_names() const { return sum_names_; }

  /// The work of a step, once all members have ended their backward passes.
  CrewWork step();
  /// Throws Error where a parameter of this member no longer lies in the shared memory.
  void check_memory(int64_t member) const;
  /// After the step, by each member for its own gradients.
  void clear(int64_t member);

  /// Throws Error where a part of the state lies in other processes; whole_state() has it, collectively over processes.
  std::map<std::string, at::Tensor> state_dict();
  std::map<std::string, at::Tensor> whole_state();
  /// Whether processes must come together for it.
  bool is_spread() const;
  /// The part that is the same in all processes.
  std::map<std::string, at::Tensor> common_state();
  void load_state_dict(const std::map<std::string, at::Tensor>& state);

 private:
  void check_handles() const;
  void take_rules();
  void sum_contributions();
  void lay_out();
  void plan(std::span<const int64_t> order, GradientArrivals arrivals);
  void prepare_next();
  std::vector<int64_t> first_order() const;
  void keep_own();
  void check_common() const;
  double sum_squares_of_all() const;
  CrewWork spread();
  CrewWork finish();
  void share_norms();
  void take_loaded();
  Interval kept(int64_t parameter) const;
  bool keeps(const Piece& piece) const;
  bool is_of_another_part(const std::string& name) const;
  at::Tensor in_shape(int64_t parameter, const at::Tensor& flat) const;
  void add_slots(std::map<std::string, at::Tensor>& out, bool gathers) const;
  std::map<std::string, std::vector<int64_t>> state_sizes() const;
  RuleSlice slice(int64_t piece);
  bool used(const Piece& piece) const { return used_[piece.parameter]; }
  const Rule& rule(const Piece& piece) const { return rules_[parameters_[piece.parameter].group]; }

  CrewWork of_pieces(std::function<void(int64_t)> run, std::function<CrewWork()> next);
  CrewWork fused();   // addition and update in one pass
  CrewWork staged();  // addition; what needs all gradients; update
  void add_piece(int64_t piece);
  void treat(Interval pieces);
  bool has_direction_of_its_own(const Piece& piece) const;
  void measure_directions(Interval pieces);
  CrewWork judge();
  TensorUpdate next_update(size_t parameter, double gradient_scale);
  TensorNorms norms_of(int64_t parameter) const;

  std::shared_ptr<TeamState> team_;  // outlives its run
  OptimizerOptions options_;
  std::vector<OptimizedParameter> parameters_;
  std::vector<Rule> rules_;
  FlatLayout layout_;
  std::vector<at::Tensor> flats_;  // [parameter] the weight as a row of memory
  std::optional<StateDivision> division_;
  std::unique_ptr<GradientCompressor> compressor_;
  bool compresses_ = false;                       // in this step
  std::vector<std::array<at::Tensor, 3>> state_;  // [parameter][slot]: what is kept here, in the weight's order
  std::mutex loading_;                            // held by the replica that loads, of those that do
  std::map<std::string, at::Tensor> loaded_;      // and not taken over yet
  std::unique_ptr<GradientExchange> exchange_;
  const bool batches_;  // one launch for the kernels of all pieces
  RuleBatch batch_;
  std::vector<RuleSlice> slices_;  // [piece]; gradients are of this step
  bool has_norms_ = false;
  bool is_settled_ = false;          // as it goes on after the first step
  int64_t numbers_ = 0;              // of parameters, in all parts of the network
  std::vector<std::string> others_;  // names of those that other parts hold

  std::vector<Contribution> contributions_;
  std::vector<std::string> sum_names_;
  std::vector<uint8_t> used_;          // [parameter] in this step, by any replica
  std::vector<TensorUpdate> updates_;  // [parameter] in this step
  std::vector<TensorNorms> norms_;     // [piece]
  double gradient_scale_ = 1;
  double loss_scale_ = 1;
  int64_t good_steps_ = 0;
  int64_t steps_ = 0;
  StepResult result_;
};

}  // namespace lockstep::parallel
