// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::trials {

/// Looks for a core that computes wrongly: all cores do the same work, again and again, each bound to its core, and
/// what most of them have is right.
struct BurnOptions {
  double seconds = 60;
  /// The CPUs, as the kernel counts them; empty: all that this process may use. Of several processes on a host each
  /// takes its part of them.
  std::vector<int> cores{};
  /// Of this process among those of its host.
  int local_rank = 0;
  int local_size = 1;
  /// For tests: changes what a core has computed in a round.
  std::function<void(int core, int64_t round, void* bytes, size_t size)> disturb{};
};

/// A core whose results were others than most cores'.
struct WrongCore {
  int rank = 0;
  std::string host;
  int core = 0;
  int64_t rounds = 0;       ///< in so many its result was another
  int64_t first_round = 0;  ///< the first of them
  std::string work;         ///< and what it had computed
};

struct BurnReport {
  int64_t cores = 0;   ///< of all processes
  int64_t rounds = 0;  ///< that every core has done
  std::vector<WrongCore> wrong{};
  int64_t undecided = 0;  ///< results of which no value had more than half of the cores
  bool is_good() const { return wrong.empty() && undecided == 0; }
};

/// Collective over the group, with the same report on all. A round is a product of matrices, a convolution with its
/// gradients, transcendental functions, and a large buffer that is written and read again. Throws Error where there is
/// no core, and CommError.
BurnReport burn(const BurnOptions& options, const comm::Group& group = {});

}  // namespace lockstep::trials
