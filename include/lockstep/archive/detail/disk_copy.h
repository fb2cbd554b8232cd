// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

/// Tensors whose memory is a file without a name, for what is large and seldom looked at.
namespace lockstep::archive {

/// The values on CPU, row-major, in such memory, in the folder TMPDIR or else /var/tmp. What is small, and what finds
/// no place there, is a copy in memory as usual.
at::Tensor disk_copy(const at::Tensor& tensor);

/// The pages of such a tensor leave this process, and come back when they are looked at. Nothing happens to others.
void let_go(const at::Tensor& tensor);

}  // namespace lockstep::archive
