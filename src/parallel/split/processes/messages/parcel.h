// SPDX-License-Identifier: Apache-2.0
// What parts of a network that are processes send each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::parallel {

/// Numbers, words and tensors, undefined ones too. A tensor arrives with its sizes and strides, and as far from a
/// boundary of 64 bytes as it was: kernels choose by these.
struct Parcel {
  std::vector<int64_t> numbers{};
  std::vector<std::string> words{};  // without line ends
  std::vector<at::Tensor> tensors{};
};

/// The size of the next parcel's first message, which both sides must know: that of the parcel before, or what both
/// have foreseen. So a parcel of this size is one message, where its tensors are small. Each side has one a tag.
struct FirstMessage {
  int64_t bytes = 2048;
  bool is_foreseen = false;

  /// The next parcel will be the gradients of these. Both sides say so, and in the same order; of two times, without a
  /// parcel in between, the first one counts.
  void foresee_gradients(const std::vector<at::Tensor>& tensors);
};

/// The next parcel with a tag, as its receiver has it.
struct Arrival {
  FirstMessage first{};
  at::Tensor memory{};  ///< for the first message, once that is expected
  comm::Work work{};
};

/// Posts it. The works end when it has been sent; its tensors are not to change before.
std::vector<comm::Work> post(const comm::Group& group, int to, int tag, const Parcel& parcel, FirstMessage& first);
/// The next one may come, now or when it is sent: else it would wait until its sender hears of a receive(), and that
/// word may have to wait behind what goes there.
void expect(const comm::Group& group, int from, int tag, Arrival& next);
/// Blocks until the next one with this tag is here.
Parcel receive(const comm::Group& group, int from, int tag, Arrival& next);

}  // namespace lockstep::parallel
