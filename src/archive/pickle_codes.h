// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::archive {

/// Operations of a pickle, by Python's names (pickletools lists them).
enum class Code : uint8_t {
  mark = '(',
  stop = '.',
  none = 'N',
  newtrue = 0x88,
  newfalse = 0x89,
  binint = 'J',
  binint1 = 'K',
  binint2 = 'M',
  long1 = 0x8a,
  binfloat = 'G',
  binunicode = 'X',
  empty_list = ']',
  append = 'a',
  appends = 'e',
  empty_tuple = ')',
  tuple = 't',
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  empty_dict = '}',
  setitem = 's',
  setitems = 'u',
  global = 'c',
  reduce = 'R',
  newobj = 0x81,
  build = 'b',
  binpersid = 'Q',
  binput = 'q',
  long_binput = 'r',
  binget = 'h',
  long_binget = 'j',
  proto = 0x80,
};

struct StorageName {
  std::string_view name;
  c10::ScalarType type;
};

/// Python's names of typed storages.
inline constexpr std::array<StorageName, 12> kStorageNames{{{"FloatStorage", c10::kFloat},
                                                            {"DoubleStorage", c10::kDouble},
                                                            {"HalfStorage", c10::kHalf},
                                                            {"BFloat16Storage", c10::kBFloat16},
                                                            {"LongStorage", c10::kLong},
                                                            {"IntStorage", c10::kInt},
                                                            {"ShortStorage", c10::kShort},
                                                            {"CharStorage", c10::kChar},
                                                            {"ByteStorage", c10::kByte},
                                                            {"BoolStorage", c10::kBool},
                                                            {"ComplexFloatStorage", c10::kComplexFloat},
                                                            {"ComplexDoubleStorage", c10::kComplexDouble}}};

}  // namespace lockstep::archive
