// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::report {

/// A message in protobuf's wire format, put together field by field: numbers little-endian, lengths as varints.
class Message {
 public:
  Message& integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& number(int field, double value) {
    key(field, 1);
    fixed(std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& number(int field, float value) {
    key(field, 5);
    fixed(std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }
  Message& packed(int field, std::span<const double> values) {
    key(field, 2);
    varint(values.size() * sizeof(double));
    for (const double value : values) fixed(std::bit_cast<uint64_t>(value));
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <class Bits>
  void fixed(Bits bits) {
    for (size_t i = 0; i < sizeof(Bits); ++i) bytes_ += static_cast<char>(bits >> 8 * i);
  }

  std::string bytes_;
};

/// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

/// A record as TFRecord frames it: length, its checksum, the bytes, theirs. Checksums are rotated and shifted
/// ("masked").
std::string tf_record(std::string_view bytes);

}  // namespace lockstep::report
