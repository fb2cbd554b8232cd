// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep {

/// Four random 32-bit words.
struct PhiloxBlock {
  uint32_t word[4];

  /// Words 0 and 1, or 2 and 3, as one number; the first is the low half.
  LOCKSTEP_HOST_DEVICE constexpr uint64_t pair(int which) const {
    return uint64_t{word[2 * which]} | uint64_t{word[2 * which + 1]} << 32;
  }
};

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a keyed bijection of 128-bit
/// counters whose values pass as random. It has no state, so that any number can be drawn first, by any thread or
/// device, and it uses integers only, so that it is the same everywhere. Counter = (low, high), key = 64 bits.
LOCKSTEP_HOST_DEVICE constexpr PhiloxBlock philox4x32_10(uint64_t key, uint64_t low, uint64_t high) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock x{{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                 static_cast<uint32_t>(high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * x.word[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * x.word[2];
    x = {{static_cast<uint32_t>(p1 >> 32) ^ x.word[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ x.word[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;  // the golden ratio
    k1 += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return x;
}

/// Names one sequence of random numbers: (seed, stream), each of any value. The numbers of two keys are unrelated.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;

  /// Block `index` of this key's sequence.
  LOCKSTEP_HOST_DEVICE constexpr PhiloxBlock block(uint64_t index) const { return philox4x32_10(seed, index, stream); }

  /// A key of its own for each value of `data`: `key.fold(step).fold(replica).fold(layer)`. The order matters.
  /// Folding runs Philox under another key than drawing does, so that it never repeats what block() returns.
  LOCKSTEP_HOST_DEVICE constexpr RandomKey fold(uint64_t data) const {
    const PhiloxBlock x = philox4x32_10(~seed ^ 0x6C6F636B73746570u, data, stream);
    return {x.pair(0), x.pair(1)};
  }

  LOCKSTEP_HOST_DEVICE constexpr bool operator==(const RandomKey& other) const {
    return seed == other.seed && stream == other.stream;
  }
};

}  // namespace lockstep
