// SPDX-License-Identifier: Apache-2.0
// What a sum over all processes costs, from the messages that it sends.
#pragma once

#include "lockstep/parallel/forecast.h"

namespace lockstep::parallel {

struct ExchangeTime {
  double link = 0;     ///< seconds from its begin to its end, where computing holds nothing up
  double compute = 0;  ///< seconds of a core in each process: additions and messages
  int64_t bytes = 0;   ///< sent by the process that sends most
};

/// `add_byte`: seconds of a core that adding up one node's byte takes.
ExchangeTime exchange_time(const Placement& blocks, int64_t numel, int64_t element_bytes, Order order,
                           const LinkCost& link, double add_byte);

}  // namespace lockstep::parallel
