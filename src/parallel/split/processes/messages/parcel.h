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

/// The size of the next parcel's first message, which both sides must know: that of the parcel before. So a parcel of
/// the size of the last one is one message, where its tensors are small. Each side has one a tag.
struct FirstMessage {
  int64_t bytes = 2048;
};

/// Posts it. The works end when it has been sent; its tensors are not to change before.
std::vector<comm::Work> post(const comm::Group& group, int to, int tag, const Parcel& parcel, FirstMessage& first);
/// Blocks until the next one with this tag is here.
Parcel receive(const comm::Group& group, int from, int tag, FirstMessage& first);

}  // namespace lockstep::parallel
