// SPDX-License-Identifier: Apache-2.0
// Which process keeps and updates which part of the weights (ZeRO-1).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/numerics/placement.h"
#include "parallel/team/team_state.h"

namespace lockstep::parallel {

/// Which process keeps and updates which elements of the weights: process p the p-th part of all elements, parameter
/// after parameter, cut where pieces are (gradient_plan.h). And how all get to know what each has.
class StateDivision {
 public:
  StateDivision(const TeamState& team, const std::vector<at::Tensor>& weights);

  /// The elements of a parameter that this process has; maybe none.
  Interval mine(int64_t parameter) const { return parts_[me_][parameter].interval; }
  /// Of the piece that begins there.
  bool owns(int64_t parameter, int64_t begin) const {
    return mine(parameter).begin <= begin && begin < mine(parameter).end;
  }

  /// Collective over processes. `flats`: [parameter], all its elements as a row of memory, of which this process's are
  /// right; then all are. Undefined ones, the same on all processes, are passed over.
  void gather(const comm::Group& group, const std::vector<at::Tensor>& flats) const;

 private:
  struct Part {
    Interval interval;
    int64_t offset = 0;  // among the elements of one dtype that its process has
  };
  struct Dtype {
    at::ScalarType dtype;
    std::vector<int64_t> lengths;  // elements of each process
    std::vector<int64_t> parameters;
  };

  Dtype& entry_of(at::ScalarType dtype);
  void copy(int64_t process, const Dtype& dtype, Interval window, const at::Tensor& message,
            const std::vector<at::Tensor>& flats, bool out) const;

  int64_t me_;
  at::Device device_;
  std::vector<std::vector<Part>> parts_;  // [process][parameter]
  std::vector<Dtype> dtypes_;
};

}  // namespace lockstep::parallel
