// SPDX-License-Identifier: Apache-2.0
// A network that the threads of a process divide: replicas go through its parts one behind another.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/context/detail/borders.h"
#include "lockstep/context/stages.h"
#include "parallel/crew/crew.h"

namespace lockstep::parallel {

/// The devices of each part, where so many are divided over them: as even as can be. With fewer devices than parts
/// neighbouring parts are joined.
std::vector<int64_t> devices_of_parts(int64_t devices, int64_t parts);

/// The stages of a network. Throws Error for one that has none.
std::vector<Stage> stages_in(torch::nn::Module& network);

/// Lets the replicas' networks go through borders between their stages, of which these are the names. Throws Error
/// where there are fewer than parts.
std::vector<std::string> make_divisible(const std::vector<std::shared_ptr<torch::nn::Module>>& networks, int64_t parts);

/// Each replica's thread keeps its whole graph. Between two parts lies a node of autograd that passes everything on as
/// it is; forwards and backwards the replica's permit is exchanged there for one of the part that comes next. So no sum
/// and no kernel is another one than without. Gradients of weights may be left for when a device would be idle.
///
/// In the first step nothing is cut: nodes behind every stage take the time. When it ends the cut is made, for good.
class Pipeline {
 public:
  /// `parts`: as asked for; `devices`: of each part that there is a device for.
  Pipeline(Crew& crew, int64_t parts, std::vector<int64_t> devices);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline();

  /// The one network that is divided, as all members have it. Throws Error where it can't be cut.
  void take(const std::vector<std::shared_ptr<torch::nn::Module>>& networks);

  /// What a member's thread goes through between stages; null where there is one part to go through.
  Borders* borders(int64_t member);

  /// A member's backward pass, from a loss, and what is left to do when it is over, whether there was one or not.
  void backward(int64_t member, const at::Tensor& loss, const at::Tensor& gradient);
  void end_backward(int64_t member);

  /// All members have ended their passes: the first call makes the cut.
  void cut();

 private:
  class Member;

  int64_t parts_here() const { return static_cast<int64_t>(devices_.size()); }
  bool is_cut() const { return !first_.empty(); }

  Crew& crew_;
  const int64_t parts_;
  const std::vector<int64_t> devices_;
  std::vector<std::string> names_;  // of the stages; none before there is a network
  std::vector<size_t> first_;       // stage of each part, once it is known
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace lockstep::parallel
