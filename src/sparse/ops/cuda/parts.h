// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime_api.h>

#include "sparse/ops/cuda/channelwise_parts.h"
#include "sparse/ops/cuda/row_parts.h"

namespace lockstep::sparse::cuda {

/// Runs part(0), ..., part(count - 1) on the GPU. For the parts named above, of float, double, c10::Half and
/// c10::BFloat16.
template <class Part>
void launch(int64_t count, cudaStream_t stream, const Part& part);

/// All of them, to be instantiated beside the definition of launch().
#define LOCKSTEP_SPARSE_LAUNCH(...) template void launch(int64_t, cudaStream_t, const __VA_ARGS__&)
#define LOCKSTEP_SPARSE_LAUNCHES_OF(T)             \
  LOCKSTEP_SPARSE_LAUNCH(SumPiece<T>);             \
  LOCKSTEP_SPARSE_LAUNCH(SumChosen<T>);            \
  LOCKSTEP_SPARSE_LAUNCH(JoinPieces<T>);           \
  LOCKSTEP_SPARSE_LAUNCH(BestOfPiece<T>);          \
  LOCKSTEP_SPARSE_LAUNCH(JoinBests<T>);            \
  LOCKSTEP_SPARSE_LAUNCH(PickChosen<T>);           \
  LOCKSTEP_SPARSE_LAUNCH(DotEntry<T>);             \
  LOCKSTEP_SPARSE_LAUNCH(SumSlice<T>);             \
  LOCKSTEP_SPARSE_LAUNCH(SumLines<Compute<T>, T>); \
  LOCKSTEP_SPARSE_LAUNCH(ChannelwiseForward<T>);   \
  LOCKSTEP_SPARSE_LAUNCH(ChannelwiseWeight<T>)
#define LOCKSTEP_SPARSE_LAUNCHES          \
  LOCKSTEP_SPARSE_LAUNCHES_OF(float);     \
  LOCKSTEP_SPARSE_LAUNCHES_OF(double);    \
  LOCKSTEP_SPARSE_LAUNCHES_OF(c10::Half); \
  LOCKSTEP_SPARSE_LAUNCHES_OF(c10::BFloat16)

}  // namespace lockstep::sparse::cuda
