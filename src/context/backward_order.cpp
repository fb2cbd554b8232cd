// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/detail/backward_order.h"

#include <ATen/SequenceNumber.h>

#include "lockstep/context/detail/context.h"

namespace lockstep {
namespace {

// Between a batch norm and the convolutions behind it there are an activation, a sum, a concatenation.
constexpr uint64_t kLately = 16;

}  // namespace

uint64_t early_node_number() {
  return uint64_t{1} << 63 | at::sequence_number::get_and_increment();
}

uint64_t waiting_node_number() {
  const uint64_t number = at::sequence_number::get_and_increment();
  Context::current().before_wait = at::sequence_number::get_and_increment();
  return number;
}

uint64_t deferred_node_number() {
  const uint64_t number = at::sequence_number::get_and_increment();
  const std::optional<uint64_t> before_wait = Context::current().before_wait;
  return before_wait && number - *before_wait <= kLately ? *before_wait : number;
}

}  // namespace lockstep
