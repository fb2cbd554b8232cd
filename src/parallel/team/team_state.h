// SPDX-License-Identifier: Apache-2.0
// What the replicas of a process share while a team runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/detail/guarded.h"
#include "lockstep/base/timeline.h"
#include "lockstep/comm/work.h"
#include "lockstep/context/detail/peers.h"
#include "lockstep/numerics/detail/flat.h"
#include "lockstep/numerics/philox.h"
#include "lockstep/parallel/team.h"
#include "parallel/crew/crew.h"
#include "parallel/split/pipeline.h"
#include "parallel/split/processes/process_pipeline.h"
#include "parallel/split/slice_helpers.h"

namespace lockstep::parallel {

/// What is drawn in a run: before the first network is shared, in a step, and who is audited.
inline constexpr uint64_t kSetupDraws = 1, kStepDraws = 2, kAuditDraws = 3;

/// What a module held when it was shared.
struct WatchedModule {
  const torch::nn::Module* module = nullptr;
  std::vector<const torch::nn::Module*> children;
  std::vector<const c10::TensorImpl*> parameters;
};

/// A network that all replicas share, as this process holds it.
struct SharedNetwork {
  std::vector<std::shared_ptr<torch::nn::Module>> networks;  // one a replica of this process
  std::vector<std::string> names;                            // of the parameters, tied ones once
  FlatBuffer weights;
  std::vector<std::vector<at::Tensor>> parameters;  // [replica here][parameter]: leaves that alias the weights
  std::vector<std::vector<WatchedModule>> watched;  // [replica here][module]
  std::vector<bool> has_optimizer;                  // a parameter
};

class Audit;
class OptimizerState;
struct TeamState;

/// The rows of all processes' replicas, on their way: [replicas, n], from [members, n] of each.
class RowGathering {
 public:
  RowGathering(const TeamState& team, const at::Tensor& rows);
  /// By one thread at a time.
  at::Tensor wait();

 private:
  const Placement& placement() const;

  const TeamState& team_;
  at::Tensor rows_;
  std::optional<comm::Work> arriving_;
};

/// What the replicas of this process bring to one all_gather, and what comes of it.
struct AllGather {
  explicit AllGather(int64_t members) : rows(members) {}

  std::vector<at::Tensor> rows;
  Mutex waiting;
  std::optional<RowGathering> gathering LOCKSTEP_GUARDED_BY(waiting);  // once all have come
};

struct TeamState {
  TeamOptions options;
  Placement placement;
  Interval block;
  at::Device device = at::kCPU;
  int64_t threads = 1;  // devices of this process
  int64_t permits = 1;  // replicas that may compute at once
  /// Gradients travel on one group and everything else on another: their operations interleave differently in
  /// different processes.
  comm::Group gradients;
  comm::Group control;
  comm::Group everyone;  // all processes, for what they must be told alike
  /// Where the parts of the network are processes, the placement and the groups above are of those that hold the same
  /// part. These are of all processes, for messages between parts, and of the parts of this process's copy.
  PartPlace part;
  comm::Group messages;
  comm::Group line;

  // While run() runs.
  std::unique_ptr<Crew> crew;
  std::unique_ptr<Pipeline> pipeline;                 // none where devices compute whole networks
  std::unique_ptr<ProcessPipeline> process_pipeline;  // none where a process has all parts
  std::unique_ptr<SliceHelpers> helpers;              // none where a device computes all slices
  std::shared_ptr<Audit> audit;                       // none where each gradient is computed once
  std::vector<std::unique_ptr<SharedNetwork>> networks;
  std::vector<const void*> brought;  // by each member to the meeting that is under way
  std::deque<Timeline> timelines;    // one a member; of the last run where none is under way
  std::vector<at::Tensor> joint_results;
  /// Whether replicas have met in a synchronised batch norm, whose node of autograd they have in common: from there on
  /// one call of backward() is for all of them. Set while all are in that meeting.
  bool joins_backward = false;
  Mutex all_gathers_mutex;
  // Those that some member has not come to yet, how many each member has begun, and how many were sent.
  std::deque<std::shared_ptr<AllGather>> all_gathers LOCKSTEP_GUARDED_BY(all_gathers_mutex);
  std::vector<uint64_t> all_gathers_begun LOCKSTEP_GUARDED_BY(all_gathers_mutex);
  uint64_t all_gathers_sent LOCKSTEP_GUARDED_BY(all_gathers_mutex) = 0;
  std::shared_ptr<OptimizerState> made;
  std::vector<std::map<std::string, at::Tensor>> saved;  // what state_dict() gives, or one for each member
  at::Tensor agreed;                                     // what parts have agreed on in an all_gather

  /// Crew::meet where every member brings something: `on_last` sees what all brought.
  template <class T>
  void meet(int64_t member, const char* what, const T& mine,
            const std::function<CrewWork(std::span<const T* const>)>& on_last) {
    brought[member] = &mine;
    crew->meet(member, what, [&] {
      std::vector<const T*> all;
      for (const void* one : brought) all.push_back(static_cast<const T*>(one));
      return on_last(all);
    });
  }

  int64_t members() const { return block.size(); }
  /// What a replica draws from in a step.
  RandomKey draws_of(int64_t step, int64_t replica) const {
    return RandomKey{options.seed, kStepDraws}.fold(static_cast<uint64_t>(step)).fold(static_cast<uint64_t>(replica));
  }
  /// Parts that the threads of this process divide the network into.
  int64_t thread_parts() const { return has_process_parts() ? 1 : options.split.parts; }
  std::vector<comm::Group> groups() const;
  /// Threads that compute no replica, but slices of others'.
  int64_t helpers_wanted() const { return options.split.sharers > 1 ? threads - permits : 0; }
  bool has_other_processes() const { return placement.processes() > 1; }
  bool has_process_parts() const { return part.parts > 1; }
  /// Whether this process has a tensor of the network with this owner (ProcessCut), and whether it saves it.
  bool saves(int64_t owner) const { return ProcessCut::saves(part.part, owner); }
  /// Autograd's one thread of a GPU runs the backward passes of all replicas here: it must not wait for one of them, so
  /// synchronised batch norms make one node for all.
  bool shares_backward() const { return members() > 1 && (options.shares_backward || device.is_cuda()); }

  /// Sums one row a replica of this process, [members, n] float64, with all others' in the tree's order: [n].
  at::Tensor sum_rows(const at::Tensor& rows, const comm::Group& group) const;
  /// In place, over the parts of the network, whose values are the same but for wishes to stop and the like, and times:
  /// the largest.
  void agree_over_parts(const at::Tensor& values) const;
  /// What the parts of the network hold of each of these: all of it where it is wanted here, else what was given. Until
  /// the network is cut each has all.
  void join_parts(std::vector<std::map<std::string, at::Tensor>>& held, const std::vector<bool>& wanted) const;
  /// All rows of all processes, [replicas, n], from [members, n].
  at::Tensor gather_rows(const at::Tensor& rows) const;

  /// A member's part of the next all_gather that it begins, and what all of them do when the last has come.
  std::shared_ptr<AllGather> bring(int64_t member, const at::Tensor& row);
  void send_next();
};

inline const Placement& RowGathering::placement() const {
  return team_.placement;
}

/// The replicas as one of them sees them, for synchronised batch norms and for Replica itself.
class CrewPeers : public Peers {
 public:
  CrewPeers(TeamState& team, int64_t member) : team_(team), member_(member) {}
  int64_t replica() const override { return team_.block.begin + member_; }
  int64_t replicas() const override { return team_.placement.replicas(); }
  at::Tensor all_gather(const at::Tensor& mine) override;
  Gathered begin_all_gather(const at::Tensor& mine) override;
  bool shares_backward() const override { return team_.shares_backward(); }
  GatherRows gather_rows() const override;
  at::Tensor meet(const std::vector<at::Tensor>& mine, const Joint& joint) override;

 private:
  TeamState& team_;
  int64_t member_;
};

}  // namespace lockstep::parallel
