// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>

namespace lockstep::bench {

/// OpenMPI's all-reduce between processes that mpirun started beside this one.
class MpiPeer {
 public:
  /// Null where this build has no MPI.
  static std::unique_ptr<MpiPeer> start(int ranks);
  ~MpiPeer();
  MpiPeer(const MpiPeer&) = delete;
  MpiPeer& operator=(const MpiPeer&) = delete;

  /// Seconds per all-reduce of float32.
  double all_reduce(int64_t bytes, int64_t repetitions);

 private:
  MpiPeer() = default;
  pid_t pid_ = 0;
  FILE* orders_ = nullptr;
  FILE* answers_ = nullptr;
};

}  // namespace lockstep::bench
