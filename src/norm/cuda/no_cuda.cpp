// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/error.h"
#include "lockstep/norm/detail/row_kernels.h"
#include "norm/channel_parts.h"
#include "norm/strided.h"

namespace lockstep::norm::cuda {
namespace {

[[noreturn]] void refuse(c10::Device device) {
  fail("batch_norm", "this build has no CUDA and got a tensor on ", device, ", expected one on the CPU");
}

}  // namespace

template <class Part>
void for_each_channel(c10::Device device, int64_t /*channels*/, const Part& /*part*/) {
  refuse(device);
}
template void for_each_channel(c10::Device, int64_t, const MakeStatistics&);
template void for_each_channel(c10::Device, int64_t, const MoveRow<float>&);
template void for_each_channel(c10::Device, int64_t, const MoveRow<double>&);

at::Tensor merge_moments(const at::Tensor& all) {
  refuse(all.device());
}
at::Tensor batch_moments(const at::Tensor& x) {
  refuse(x.device());
}
at::Tensor batch_normalize(const at::Tensor& x, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                           const at::Tensor&) {
  refuse(x.device());
}
at::Tensor batch_gradient_sums(const at::Tensor&, const at::Tensor& x, const at::Tensor&, const at::Tensor&) {
  refuse(x.device());
}
at::Tensor batch_input_gradient(const at::Tensor&, const at::Tensor& x, const at::Tensor&, const at::Tensor&,
                                const at::Tensor&, const at::Tensor&) {
  refuse(x.device());
}

}  // namespace lockstep::norm::cuda
