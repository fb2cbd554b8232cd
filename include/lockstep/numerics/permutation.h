// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/numerics/philox.h"

namespace lockstep {

/// A random order of the numbers 0 .. size-1 that needs no table: `permutation(position)` is computed where it is
/// asked for, in O(1) time and memory, in integer arithmetic, the same on every platform and device.
///
/// A Feistel network permutes the smallest power of two that holds the size: the bits are cut in two halves, and each
/// round xors one half with a keyed hash of the other, which can be undone whatever the hash is. A value that lands
/// past the size is permuted again until it lands inside ("cycle walking"); as fewer than half of all values are
/// past it, that takes less than two rounds on average.
class KeyedPermutation {
 public:
  /// Size 0 is legal and has no positions. Throws Error when the size is negative.
  KeyedPermutation(RandomKey key, int64_t size);

  int64_t size() const { return size_; }

  /// The number at this position. Requires 0 <= position < size(), unchecked.
  LOCKSTEP_HOST_DEVICE int64_t operator()(int64_t position) const {
    auto x = static_cast<uint64_t>(position);
    do x = forward(x);
    while (x >= static_cast<uint64_t>(size_));
    return static_cast<int64_t>(x);
  }

  /// The position of this number. Requires 0 <= number < size(), unchecked.
  LOCKSTEP_HOST_DEVICE int64_t inverse(int64_t number) const {
    auto x = static_cast<uint64_t>(number);
    do x = backward(x);
    while (x >= static_cast<uint64_t>(size_));
    return static_cast<int64_t>(x);
  }

 private:
  // Few bits mix slowly: with 12 rounds, some orders of 5 numbers were a tenth likelier than others; with 32, the
  // orders of up to 8 numbers could not be told from uniform in 2 million draws.
  static constexpr int most_rounds = 32;
  static constexpr int rounds_for(int bits) { return bits <= 8 ? most_rounds : 12; }

  // Even rounds change the high half, odd rounds the low half; halves have up to 32 bits.
  LOCKSTEP_HOST_DEVICE uint64_t forward(uint64_t x) const {
    for (int round = 0; round < rounds_; ++round) x = turn(x, round);
    return x;
  }
  LOCKSTEP_HOST_DEVICE uint64_t backward(uint64_t x) const {
    for (int round = rounds_; round-- > 0;) x = turn(x, round);
    return x;
  }
  LOCKSTEP_HOST_DEVICE uint64_t turn(uint64_t x, int round) const {
    const uint64_t low = x & low_mask_, high = x >> low_bits_;
    return round % 2 == 0 ? x ^ (hash(low, round) & high_mask_) << low_bits_ : x ^ (hash(high, round) & low_mask_);
  }
  // The finaliser of SplitMix64: every bit of the input changes every bit of the output.
  LOCKSTEP_HOST_DEVICE uint64_t hash(uint64_t x, int round) const {
    x += round_key_[round];
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x >> 32 ^ x;
  }

  int64_t size_;
  int rounds_;
  int low_bits_;
  uint64_t low_mask_, high_mask_;
  uint64_t round_key_[most_rounds];
};

}  // namespace lockstep
