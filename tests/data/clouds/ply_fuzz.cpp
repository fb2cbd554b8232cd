// SPDX-License-Identifier: Apache-2.0
// libFuzzer on PLY files: any bytes are read or refused with an Error; what is read fills no more memory than the file
// can account for, and writing and reading it again gives the same file.
//
//     ./dev test --preset asan --label fuzz
#include <cstdio>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/data/ply.h"

namespace {

using namespace lockstep::data;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the fuzzer found that %s does not hold\n", what);
  std::abort();
}

Ply parse(const std::string& bytes) {
  return parse_ply({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again.ply");
}

void run(std::span<const uint8_t> bytes) {
  const Ply ply = parse_ply(bytes, "fuzz.ply");
  for (const PlyElement& element : ply.elements)
    for (const PlyColumn& column : element.columns) {
      check(column.values.size() <= bytes.size(), "a byte a value at least");
      check(std::cmp_equal(column.count_type ? column.ends.size() : column.values.size(), element.rows),
            "a cell a row");
    }
  // Not compared as values: files may hold NaN.
  const std::string written = to_bytes(ply);
  check(to_bytes(parse(written)) == written, "that a file stays as it was written");
  static_cast<void>(cloud_of(ply, "fuzz.ply"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    run({data, size});
  } catch (const lockstep::Error&) {
    // What bad input is to give.
  }
  return 0;
}
