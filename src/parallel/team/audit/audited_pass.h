// SPDX-License-Identifier: Apache-2.0
// What devices tell each other of a step that is computed twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/context/detail/peers.h"

namespace lockstep::parallel {

/// What another device must know of a replica's step to do the same, and what came of it.
struct AuditedPass {
  std::vector<double> scales;        // of the losses, one a backward pass
  std::vector<at::Tensor> buffers;   // of the networks, before the step
  std::vector<at::Tensor> gathered;  // by synchronised batch norms, from all replicas, in the order of the calls
  std::vector<int64_t> brought;      // hashes of what this replica brought to these
};

/// The bits that one device computed of an audited replica's step.
struct Opinion {
  std::vector<int64_t> hashes;  // of the gradients, then of what synchronised batch norms brought; empty: no opinion
  std::vector<int64_t> cores;   // that computed it; none on a GPU
  std::string host;
  std::string device;  // for people, with its host
  int process = 0;
};

/// Three opinions' odd one out: its place, or -1 where all differ.
int odd_one_out(const Opinion& a, const Opinion& b, const Opinion& c);

/// As tensors, which travel between processes.
std::vector<at::Tensor> packed(const AuditedPass& pass);
std::vector<at::Tensor> packed(const Opinion& opinion);
AuditedPass pass_in(const std::vector<at::Tensor>& tensors);
Opinion opinion_in(const std::vector<at::Tensor>& tensors, int process);

/// The other replicas as the audited one met them.
class RecordedPeers : public Peers {
 public:
  RecordedPeers(const AuditedPass& pass, int64_t replica, int64_t replicas)
      : pass_(pass), replica_(replica), replicas_(replicas) {}
  int64_t replica() const override { return replica_; }
  int64_t replicas() const override { return replicas_; }
  at::Tensor all_gather(const at::Tensor& mine) override { return begin_all_gather(mine)(); }
  /// Throws Error where more is asked for than was recorded.
  Gathered begin_all_gather(const at::Tensor& mine) override;
  /// Hashes of what this replica has brought.
  const std::vector<int64_t>& brought() const { return brought_; }

 private:
  const AuditedPass& pass_;
  const int64_t replica_, replicas_;
  std::vector<int64_t> brought_;
};

}  // namespace lockstep::parallel
