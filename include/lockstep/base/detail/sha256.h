// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// SHA-256 (FIPS 180-4) of bytes that come in parts: what two runs compare when they claim the same model.
class Sha256 {
 public:
  void update(const void* bytes, size_t count);
  /// The 64 hexadecimal digits. Ends the message: call it once.
  std::string hex();

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> open_{};  // the block that is not full yet
  uint64_t length_ = 0;             // bytes
};

}  // namespace lockstep
