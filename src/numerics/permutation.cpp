// SPDX-License-Identifier: Apache-2.0
#include "lockstep/numerics/permutation.h"

#include <bit>

#include "lockstep/base/error.h"

namespace lockstep {

KeyedPermutation::KeyedPermutation(RandomKey key, int64_t size) : size_(size) {
  require(size >= 0, "KeyedPermutation", "size is ", size, ", expected at least 0");
  const int bits = size <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(size - 1));
  rounds_ = rounds_for(bits);
  low_bits_ = bits - bits / 2;
  low_mask_ = (uint64_t{1} << low_bits_) - 1;
  high_mask_ = (uint64_t{1} << bits / 2) - 1;
  // The size takes part, so that the orders of two sizes are unrelated too.
  const RandomKey own = key.fold(static_cast<uint64_t>(size));
  for (int pair = 0; pair < most_rounds / 2; ++pair) {
    const PhiloxBlock block = own.block(static_cast<uint64_t>(pair));
    round_key_[2 * pair] = block.pair(0);
    round_key_[2 * pair + 1] = block.pair(1);
  }
}

}  // namespace lockstep
