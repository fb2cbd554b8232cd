// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradients/division.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "lockstep/context/timeline_scope.h"
#include "parallel/gradients/plan.h"

namespace lockstep::parallel {
namespace {

// What travels at once: the memory for it is all that gathering takes.
constexpr int64_t kMessageElements = 1 << 20;

}  // namespace

StateDivision::StateDivision(const TeamState& team, const std::vector<at::Tensor>& weights)
    : me_(team.options.group.rank()),
      device_(team.device),
      parts_(team.placement.processes(), std::vector<Part>(weights.size())) {
  const int64_t processes = team.placement.processes();
  int64_t all = 0, before = 0;
  for (const auto& weight : weights) all += weight.numel();
  for (size_t p = 0; p < weights.size(); ++p) {
    const int64_t numel = weights[p].numel(), length = piece_length(device_, numel);
    Dtype& dtype = entry_of(weights[p].scalar_type());
    dtype.parameters.push_back(static_cast<int64_t>(p));
    for (int64_t begin = 0; begin < numel; begin += length) {
      const int64_t owner = (before + begin) * processes / all;
      Part& part = parts_[owner][p];
      if (part.interval.size() == 0) part = {{begin, begin}, dtype.lengths[owner]};
      dtype.lengths[owner] += std::min(length, numel - begin);
      part.interval.end = std::min(numel, begin + length);
    }
    before += numel;
  }
}

StateDivision::Dtype& StateDivision::entry_of(at::ScalarType dtype) {
  const auto found = std::ranges::find(dtypes_, dtype, &Dtype::dtype);
  if (found != dtypes_.end()) return *found;
  return dtypes_.emplace_back(Dtype{dtype, std::vector<int64_t>(parts_.size(), 0), {}});
}

void StateDivision::gather(const comm::Group& group, const std::vector<at::Tensor>& flats) const {
  const at::NoGradGuard no_grad;
  const auto processes = static_cast<int64_t>(parts_.size());
  for (const Dtype& dtype : dtypes_) {
    const int64_t longest = *std::ranges::max_element(dtype.lengths);
    for (int64_t begin = 0; begin < longest; begin += kMessageElements) {
      const Interval window{begin, std::min(longest, begin + kMessageElements)};
      const auto received = at::empty({processes, window.size()}, at::TensorOptions(dtype.dtype).device(device_));
      const auto sent = at::zeros_like(received[0]);
      copy(me_, dtype, window, sent, flats, true);
      {
        const PhaseScope waiting(Phase::exposed);
        group.all_gather(received, sent).wait();
      }
      for (int64_t process = 0; process < processes; ++process)
        if (process != me_) copy(process, dtype, window, received[process], flats, false);
    }
  }
}

// Between a process's message, which holds a window of its elements, and where they belong.
void StateDivision::copy(int64_t process, const Dtype& dtype, Interval window, const at::Tensor& message,
                         const std::vector<at::Tensor>& flats, bool out) const {
  for (const int64_t p : dtype.parameters) {
    const Part& part = parts_[process][p];
    const int64_t begin = std::max(window.begin, part.offset);
    const int64_t length = std::min(window.end, part.offset + part.interval.size()) - begin;
    if (length <= 0 || !flats[p].defined()) continue;
    const auto in_message = message.narrow(0, begin - window.begin, length);
    const auto in_place = flats[p].narrow(0, part.interval.begin + begin - part.offset, length);
    (out ? in_message : in_place).copy_(out ? in_place : in_message);
  }
}

}  // namespace lockstep::parallel
