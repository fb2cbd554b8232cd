// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace lockstep {

class Bundle;

/// How a replica's thread goes from one stage of a network to the next, where a team divides the network.
class Borders {
 public:
  Borders() = default;
  Borders(const Borders&) = delete;
  Borders& operator=(const Borders&) = delete;
  virtual ~Borders() = default;

  /// Before stage `next` of `stages`; behind the last one where the two are equal. False: the stage is not run here.
  virtual bool come_to(size_t next, size_t stages, Bundle& bundle) = 0;
};

}  // namespace lockstep
