// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cmath>
#include <cstdint>

#include "lockstep/numerics/philox.h"

// What becomes of one channel's moments, [3, channels] (norm/detail/batch_statistics.h), on a CPU or a GPU: a few
// numbers, of which ATen's operations, some twenty of them, would take longer than all the rest of a small batch norm.

namespace lockstep::norm {

/// [3, channels]: BatchStatistics' count, variance and inverse deviation.
struct MakeStatistics {
  const double* moments;
  int64_t channels;
  double epsilon;
  double* rows;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t c) const {
    const double count = moments[c] > 1 ? moments[c] : 1, variance = moments[2 * channels + c] / count;
    rows[c] = count;
    rows[channels + c] = variance;
    rows[2 * channels + c] = 1 / ::sqrt(variance + epsilon);
  }
};

/// Moves a running mean or variance. Of too few rows for it there is nothing to move to.
template <class T>
struct MoveRow {
  T* running;
  const double* moments;
  int64_t channels;
  double momentum;
  bool variance;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t c) const {
    const double count = moments[c], others = count > 2 ? count - 1 : 1;
    const double weight = count > (variance ? 1 : 0) ? momentum : 0;
    const double target = variance ? moments[2 * channels + c] / others : moments[channels + c];
    running[c] = static_cast<T>(static_cast<double>(running[c]) * (1 - weight) + target * weight);
  }
};

namespace cuda {
/// part(0), ..., part(channels - 1) on a GPU's current stream, for the parts above.
template <class Part>
void for_each_channel(c10::Device device, int64_t channels, const Part& part);
}  // namespace cuda

}  // namespace lockstep::norm
