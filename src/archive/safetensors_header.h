// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::archive {

/// Where the bytes of a tensor lie behind the header: [begin, end).
struct TensorPlace {
  std::string name = {};
  c10::ScalarType type = c10::kFloat;
  std::vector<int64_t> sizes = {};
  uint64_t begin = 0, end = 0;
};

/// Reads the JSON of a safetensors file before `data_bytes` bytes of tensors. The result is in the order of those
/// bytes, and its tensors cover all of them, each byte once. Throws DamagedFile, naming the file `name`.
std::vector<TensorPlace> parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& name);

/// The JSON for these tensors, filled with blanks to a multiple of eight bytes. Throws Error for a name that is not
/// UTF-8.
std::string safetensors_header(const std::vector<TensorPlace>& places, const std::string& name);

struct DtypeName {
  std::string_view name;
  c10::ScalarType type;
};

/// The format's names of dtypes, for those that torch has and that take whole bytes.
inline constexpr std::array<DtypeName, 18> kDtypeNames{{{"BOOL", c10::kBool},
                                                        {"U8", c10::kByte},
                                                        {"I8", c10::kChar},
                                                        {"I16", c10::kShort},
                                                        {"U16", c10::kUInt16},
                                                        {"I32", c10::kInt},
                                                        {"U32", c10::kUInt32},
                                                        {"I64", c10::kLong},
                                                        {"U64", c10::kUInt64},
                                                        {"F16", c10::kHalf},
                                                        {"BF16", c10::kBFloat16},
                                                        {"F32", c10::kFloat},
                                                        {"F64", c10::kDouble},
                                                        {"C64", c10::kComplexFloat},
                                                        {"F8_E4M3", c10::kFloat8_e4m3fn},
                                                        {"F8_E5M2", c10::kFloat8_e5m2},
                                                        {"F8_E4M3FNUZ", c10::kFloat8_e4m3fnuz},
                                                        {"F8_E5M2FNUZ", c10::kFloat8_e5m2fnuz}}};

}  // namespace lockstep::archive
