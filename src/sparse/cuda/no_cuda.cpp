// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/error.h"
#include "sparse/coordinates/cuda/coordinates.h"
#include "sparse/maps/cuda/row_lengths.h"
#include "sparse/registration.h"

namespace lockstep::sparse::cuda {
namespace {

[[noreturn]] void no_cuda(const char* operation) {
  fail(operation, "got CUDA tensors, but this build has no CUDA; expected CPU tensors or a build with a CUDA toolkit");
}

}  // namespace

void register_operations(torch::Library&) {}

MadeMap insert(const char* operation, const at::Tensor&) {
  no_cuda(operation);
}
MadeMap strided(const CoordinateMap&, std::span<const int64_t>, const points::Box&, const points::KeyLayout&,
                at::Device) {
  no_cuda("CoordinateMap::strided");
}
void keep_copy(const CoordinateMap&, const MadeMap&) {}

at::Tensor row_lengths(const RowMap&, at::Device, at::ScalarType) {
  no_cuda("mean_rows");
}

}  // namespace lockstep::sparse::cuda
