// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "report/tensorboard/protobuf.h"

namespace lockstep::report {
namespace {

constexpr std::array<uint32_t, 256> crc_table = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    table[byte] = crc;
  }
  return table;
}();

template <class Bits>
std::string little_endian(Bits bits) {
  std::string out;
  for (size_t i = 0; i < sizeof(Bits); ++i) out += static_cast<char>(bits >> 8 * i);
  return out;
}

std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian<uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ crc_table[(crc ^ static_cast<uint8_t>(byte)) & 255];
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  const std::string length = little_endian<uint64_t>(bytes.size());
  std::string record = length + masked_crc(length);
  record += bytes;
  return record += masked_crc(bytes);
}

}  // namespace lockstep::report
